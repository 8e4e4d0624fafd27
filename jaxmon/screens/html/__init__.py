"""The summary of a run as one HTML file: no script, and nothing to load."""
