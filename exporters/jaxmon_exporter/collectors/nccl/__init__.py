"""
Jobs that use NCCL, from its RAS threads.

`collector` has `client` query them, now and then, and finds what does not move between
two replies; `replies` parses these.
"""
