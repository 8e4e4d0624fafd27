"""
Human-readable reports from agent data: parse, evaluate, format.

Pure functions without JAX: `jaxmon explain` runs them in its own process, the exit
report in the program.
"""

from __future__ import annotations


SCHEMA = 1
"""
Schema version of an agent's debug endpoints, shared by writer and reader: raised when
newer output would mislead an older reader.
"""
