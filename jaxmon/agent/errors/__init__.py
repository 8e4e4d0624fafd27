"""Errors, each counted once, where they surface."""
