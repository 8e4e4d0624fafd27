"""Checks of results: determinism, gradients, non-finite values, unintended float64."""
