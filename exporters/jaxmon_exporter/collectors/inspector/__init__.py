"""
Bandwidth and time of collectives, from the files that NCCL Inspector writes.

`collector` has `files` read what was appended, `record` parse each line, and `owners`
find the agent of the process that wrote it; `tallies` counts, and `recent` keeps what
ranks are compared by.
"""
