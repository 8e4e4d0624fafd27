"""Traces: when they are on, and who makes the spans."""
