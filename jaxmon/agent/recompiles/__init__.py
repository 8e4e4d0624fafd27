"""Recompiles and their causes."""
