"""Reads XLA profiler traces, where they are displayed, without importing JAX."""
