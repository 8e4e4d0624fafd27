"""
Records what a program's functions cost to compile and run, and compares records.

`jaxmon baseline record` stores the measures of a run, `jaxmon baseline compare`
compares
another run with them, and fails if a function got worse: after a change, or with
another JAX. See `docs/testing.md`.
"""
