"""
Misses, compiles, why a function was compiled again, and what came of it.
"""
