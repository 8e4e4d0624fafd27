"""
Pure functions from catalogue and settings to documents.

Each generator returns `dict[path, text]` with paths relative to the root of the
repository; `write` puts them there or compares them with what is there.
"""
