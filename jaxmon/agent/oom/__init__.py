"""Out-of-memory reports."""
