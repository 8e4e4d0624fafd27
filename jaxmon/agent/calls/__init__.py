"""Calls and cache hits of jitted functions."""
