"""
What goes on in the processes of a host, as every screen shows it.

`reading` keeps the numbers of one response, `window` those of the last minute, and
`summary` makes the status out of both: rates, latencies and ages by route, loop and
function, and first of all whether users are all right (`answer`). Pure: no JAX, no
files, no network. What is not known is absent or `None`, never 0.
"""
