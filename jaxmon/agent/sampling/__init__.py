"""Sampled calls: how long dispatch and execution take."""
