"""
The host and the process: run directory, HTTP, files; `bootstrap` starts in a program.
"""
