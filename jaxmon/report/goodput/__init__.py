"""The record of a run, and what it says: goodput across restarts."""
