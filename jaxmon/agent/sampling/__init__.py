"""Sampled calls: dispatch and execution times."""
