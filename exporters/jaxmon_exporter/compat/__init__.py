"""Other exporters' names for our metrics."""
