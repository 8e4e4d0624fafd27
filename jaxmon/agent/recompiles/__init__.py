"""Recompiles: why a function was compiled again."""
