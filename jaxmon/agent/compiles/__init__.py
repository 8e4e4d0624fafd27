"""Compiles: misses, phases, and the resulting programs."""
