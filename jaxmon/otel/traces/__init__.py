"""
Spans of requests and compiles.

`tracer` makes them, in the application's provider if it has one, else in `provider`,
which exports by `batches` what `tail` keeps. `conventions` has all names. Nothing here
is loaded unless traces are on.
"""
