"""Transfers between host and device, and syncs."""
