"""Errors, each counted once, at the point where they surface."""
