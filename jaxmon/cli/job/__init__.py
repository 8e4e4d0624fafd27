"""``jaxmon job``: what goes on in a job of several processes."""
