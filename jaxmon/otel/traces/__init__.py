"""
Spans of requests and compiles.

`tracer` makes them, in the application's provider if it has one, else in `provider`,
which decides what to keep, and exports it. `spans` has all names. Nothing here but that
is loaded unless traces are on.
"""
