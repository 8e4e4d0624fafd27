"""
The live page: one document, whose data is the status and the history of a host or of
one process.

Sidecar and agents serve the same one. HTML, style and scripts are separate files, sent
as one response without a reference to anything else; charts are drawn by uPlot, which
is in `uplot/` with its licence.
"""
