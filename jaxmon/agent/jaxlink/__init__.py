"""The only door to JAX: what we attach to it, read from it and know of it inside."""
