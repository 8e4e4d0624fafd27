"""
TPUs, as reported by the runtimes of the programs that use them.

`collector` finds the chips on the PCI bus and polls `runtimes`, which query each
runtime at its address by gRPC, if something listens there. `messages` carries calls and
parses the replies, `reading` collects those of one runtime, and `figures` maps numbers
to chips and creates the families. `hangs` detects cores that make no progress.
"""
