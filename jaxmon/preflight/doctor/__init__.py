"""
Checks an environment before a program runs in it.

Nothing here imports JAX or starts a device. Checks that need JAX run in a separate
process, on the CPU.
"""
