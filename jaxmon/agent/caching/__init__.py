"""
JAX's persistent compilation cache.
"""
