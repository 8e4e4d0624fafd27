"""
TPUs, as reported by the runtimes of the programs that use them.

`collector` finds the chips on the PCI bus and cores that make no progress, and polls
`runtimes`, which query each runtime at its address by gRPC, if something listens there.
`messages` carries calls and parses the replies.
"""
