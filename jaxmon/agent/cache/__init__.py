"""JAX's persistent compilation cache: who hits it, and why others cannot."""
