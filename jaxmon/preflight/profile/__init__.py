"""
Reads XLA profiler traces. Does not import JAX; traces are parsed where they are
displayed.
"""
