"""
What an agent knows, as a report for people: read, judged, laid out.

Pure functions without JAX: `jaxmon explain` runs them beside a program, the exit report
inside it.
"""
