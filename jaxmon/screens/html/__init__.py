"""
The summary of a run as one HTML file: no script, nothing to load, nothing to click.
"""
