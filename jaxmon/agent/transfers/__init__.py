"""Transfers between host and device, and waits."""
