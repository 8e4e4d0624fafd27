"""Formats that are read within bounds: JSON, YAML, protocol buffers."""
