"""
What a program's functions cost to compile and to run, kept in a file and compared.

`jaxmon baseline record` keeps the figures of a run, `jaxmon baseline compare` holds
another run against them, and fails where a function got worse: after a change, or
with another JAX. See `docs/testing.md`.
"""
