"""A fleet of accelerators that do not exist, for `--demo`."""
