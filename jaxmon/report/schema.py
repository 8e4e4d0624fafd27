"""The version of an agent's pages, for who makes and who reads them."""

from __future__ import annotations


SCHEMA = 1
"""Raised when a reader of older pages would be misled by newer ones."""
