"""Device memory: how much, by which source line, and whether it leaks."""
