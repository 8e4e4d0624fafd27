"""
Fail when a tracked file names the machine it was written on.

Looks for this machine's paths and host name, whichever these are, for home directories,
and for package registries, which a site may replace.
"""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path


ROOT = Path(__file__).resolve().parent.parent

# Where a checkout or an environment may lie without telling anything.
_COMMON = {"/", "/app", "/build", "/home", "/opt", "/root", "/src", "/tmp", "/usr"}  # noqa: S108 - names, not files
_HOMES = r"/(?:home|Users)/[A-Za-z][\w.-]*"
# Brackets keep the expressions from finding themselves.
_REGISTRIES = r"\b(?:py[p]i\.(?:python\.)?org|python[h]osted\.org)\b"


def machine() -> re.Pattern[str]:
    """Return what gives this machine away, as one expression."""
    paths = {str(path) for path in (ROOT, ROOT.parent, Path.home(), Path(sys.prefix))}
    names = {name for name in (socket.gethostname(),) if len(name) > 5}  # noqa: PLR2004 - shorter ones are words
    literal = [rf"(?<![\w./]){re.escape(path)}(?![\w.-])" for path in paths - _COMMON]
    literal += [rf"\b{re.escape(name)}\b" for name in names - {"localhost"}]
    return re.compile("|".join([*literal, _HOMES, _REGISTRIES]))


def tracked() -> list[str]:
    """Return the paths of the tracked files; none outside a git checkout."""
    # A checkout may belong to another user, in a container for example.
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z"]
    try:
        listed = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (FileNotFoundError, subprocess.CalledProcessError):
        return []
    return [name for name in listed.stdout.split("\0") if name]


def findings(names: list[str], pattern: re.Pattern[str]) -> Iterator[str]:
    """Yield file, line and text of each match of *pattern* in the text files."""
    for name in names:
        path = ROOT / name
        if not path.is_file():
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        for match in pattern.finditer(text):
            number = text.count("\n", 0, match.start()) + 1
            yield f"{name}:{number}: {match[0]}"


def main() -> int:
    """Print what was found; return the exit code."""
    names = tracked()
    if not names:
        print("not a git checkout: no tracked files to look at")
    found = list(findings(names, machine()))
    for line in found:
        print(line)
    if found:
        print(f"{len(found)} mention(s) of a machine or registry; say it generally")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
