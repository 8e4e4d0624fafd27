"""
TPUs, as reported by the runtimes of the programs that use them.

`collector` finds the chips on the PCI bus and polls `runtimes`, which query each
runtime at its address (`addresses`) by gRPC (`channel`), if something is `listening`
there. `messages` parses the replies, `reading` collects those of one runtime, `places`
maps numbers to chips, and `figures` creates the families. `hangs` detects cores that
make no progress.
"""
