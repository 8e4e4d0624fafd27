"""
Bandwidth and time of collectives, from the files that NCCL Inspector writes.

`collector` reads what was appended, and finds the agent of the process that wrote it;
`collectives` parses each line, counts, and keeps what ranks are compared by.
"""
