"""Programs with an agent, and what they leave in the run directory."""

from __future__ import annotations

from pathlib import Path


# What most programs begin with; JAX is imported before anything forks.
HEAD = """
import json, os, sys, threading, urllib.request, logging
import jax, jaxmon
def get(url):
    with urllib.request.urlopen(url, timeout=60) as page:
        return page.read().decode()
"""


def files(run_dir: Path) -> list[str]:
    """Return the names in *run_dir*, sorted, without what outlives a process."""
    return sorted(one.name for one in run_dir.iterdir() if one.suffix != ".end")
