"""
Looks at an environment before a program runs in it: what will not work, and why.

Nothing here imports JAX or starts a device. What only JAX knows is asked of a
process of its own, on the CPU.
"""
