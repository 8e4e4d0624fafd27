"""TPUs, as the runtimes of the programs on them report."""
