"""Programs with an agent, and what they leave in the run directory."""

from __future__ import annotations

import platform
import re
from pathlib import Path

import pytest


# What most programs begin with; JAX is imported before anything forks.
HEAD = """
import json, os, sys, threading, urllib.request, logging
import jax, jaxmon
def get(url):
    with urllib.request.urlopen(url, timeout=60) as page:
        return page.read().decode()
"""


# Of any process whose descriptor one has.
_RELEASE = re.match(r"(\d+)\.(\d+)", platform.release())
KERNEL_REPORTS_EXITS = _RELEASE is not None and tuple(map(int, _RELEASE.groups())) >= (
    6,
    15,
)
exits_are_reported = pytest.mark.skipif(
    not KERNEL_REPORTS_EXITS, reason="Linux reports exits from 6.15 on"
)


def files(run_dir: Path) -> list[str]:
    """Return the names in *run_dir*, sorted, without what outlives a process."""
    return sorted(one.name for one in run_dir.iterdir() if one.suffix != ".end")
