"""What processes, hosts and jobs report, as typed records: each fact once."""

from __future__ import annotations


SCHEMA = 1
"""
Version of what agents report, shared by writer and reader: raised when newer output
would mislead an older reader.
"""
