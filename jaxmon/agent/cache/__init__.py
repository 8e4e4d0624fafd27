"""JAX's persistent compilation cache: hits, misses, and obstacles."""
