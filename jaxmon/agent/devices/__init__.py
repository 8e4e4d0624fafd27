"""Device identity and driver metrics."""
