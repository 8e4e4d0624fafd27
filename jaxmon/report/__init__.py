"""
What an agent knows, as a report for people: read, judged, laid out.

Pure functions without JAX: `jaxmon explain` runs them beside a program, the exit report
inside it.
"""

from __future__ import annotations


SCHEMA = 1
"""
The version of an agent's pages, for who makes and who reads them: raised when a reader
of older pages would be misled by newer ones.
"""
