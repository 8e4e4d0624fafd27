"""
TPUs, as the runtimes of the programs on them report.

`collector` finds the chips on the PCI bus and polls `runtimes`, which ask each runtime
at its place (`addresses`) by gRPC (`channel`), once somebody is `listening` there.
`messages` reads the replies, `reading` collects those of one runtime, `places` says
which chip a number means, and `figures` makes the families. `hangs` watches for cores
that stand still.
"""
