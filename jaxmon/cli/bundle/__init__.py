"""``jaxmon bundle``: what a post-mortem needs, in one file."""
