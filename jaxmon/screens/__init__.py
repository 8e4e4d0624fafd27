"""
Human-readable reports from agent data: parse, evaluate, format.

Pure functions without JAX: `jaxmon explain` runs them in its own process, the exit
report in the program.
"""
