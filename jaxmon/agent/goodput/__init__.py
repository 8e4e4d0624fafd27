"""Goodput across restarts: one record per run, kept by process 0 of each attempt."""
