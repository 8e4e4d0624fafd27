"""
The host and the process: run directory, sockets, HTTP, files, clocks, threads.

Knows neither JAX nor what is observed. `bootstrap` gets jaxmon into a program.
"""
