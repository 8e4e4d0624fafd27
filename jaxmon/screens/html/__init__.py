"""
The summary of a run as one HTML file: no script, nothing to load, nothing to click.

What it says is in `jaxmon.screens.runs`, and its tables are those of the text report.
"""
