"""Parsers with limits: JSON, YAML, protocol buffers."""
