"""Device memory: amounts, source lines and leaks."""
