"""
What people read: text, pages, the live page, the summary of a run.

Pure functions without JAX of what agents and sidecars report, which is not trusted:
`jaxmon explain` runs them in its own process, the exit report in the program.
"""
