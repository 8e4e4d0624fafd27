"""Signatures that a service was called with: a file, buckets, and warming up."""
