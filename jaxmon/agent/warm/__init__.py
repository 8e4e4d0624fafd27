"""Warm starts: signatures are recorded, and compiled ahead in another process."""
