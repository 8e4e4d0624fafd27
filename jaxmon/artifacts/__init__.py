"""
Pure functions from catalogue and settings to documents.

Each generator returns `dict[path, text]` with paths relative to the root of the
repository; `write` writes them or compares them with the existing files.
"""
