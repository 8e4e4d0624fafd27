"""What processes, hosts and jobs report, as typed records: each fact once."""

from __future__ import annotations


SCHEMA = 1
"""
Version of what agents report, on all their pages, and of what sidecars pass on of it:
raised when newer output would mislead an older reader. There is one because pages share
records.
"""
