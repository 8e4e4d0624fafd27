"""
Reading what XLA's profiler recorded. No JAX: a trace is read where it is looked at.
"""
