"""Compiles: misses, phases, and the programs that come of them."""
