"""Whether results are what they should be: equal, finite, of the expected type."""
