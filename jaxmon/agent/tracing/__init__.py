"""Mistakes in jitted functions that only their source shows."""
