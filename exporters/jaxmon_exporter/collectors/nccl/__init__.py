"""
Jobs that use NCCL, from its RAS threads: `collector` queries them, now and then, and
finds what does not move between two replies; `replies` parses these.
"""
