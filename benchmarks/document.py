"""
Results in a document, which only the command that measures them writes.

``results.json`` keeps the latest result of each benchmark; README.md beside it has them
between markers.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.rows import number


ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results.json"
PRODUCT = ("alerts", "dashboards", "exporters", "jaxmon")
DOCUMENT = ROOT / "benchmarks" / "README.md"
_MARKED = r"(<!-- measured: (\S+) -->\n).*?(<!-- end -->)"

Results = dict[str, dict[str, Any]]


def commit() -> str:
    """Return the commit that is measured; ``+`` if the package was changed since."""
    shown = _git("rev-parse", "--short=12", "HEAD")
    return shown + "+" * bool(_git("status", "--porcelain", "--", *PRODUCT))


def _git(*arguments: str) -> str:
    command = [shutil.which("git") or "git", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def load() -> Results:
    """Return the latest results."""
    found: Results = json.loads(RESULTS.read_text(encoding="utf-8"))
    return found


def write(found: Mapping[str, list[dict[str, Any]]], machine: dict[str, str]) -> None:
    """Keep the results *found* on this *machine*, and put them into the document."""
    results = load() if RESULTS.exists() else {}
    for name, rows in found.items():
        results[name] = {"machine": machine, "rows": rows}
    text = json.dumps(dict(sorted(results.items())), indent=1, ensure_ascii=False)
    RESULTS.write_text(f"{text}\n", encoding="utf-8")
    before = DOCUMENT.read_text(encoding="utf-8")
    DOCUMENT.write_text(rendered(before, results), encoding="utf-8")


def rendered(text: str, results: Results) -> str:
    """Return the *text* of a document with these *results* between its markers."""

    def fill(found: re.Match[str]) -> str:
        name = found[2]
        if name not in results:
            msg = f"{name} was never measured: run python -m benchmarks {name} --write"
            raise ValueError(msg)
        shown = _table(results[name]["rows"], results[name]["machine"])
        return f"{found[1]}\n{shown}\n{found[3]}"

    return re.sub(_MARKED, fill, text, flags=re.DOTALL)


def _table(rows: Iterable[Mapping[str, Any]], machine: Mapping[str, str]) -> str:
    lines = [
        "| measurement | median | best | goal |",
        "|---|---:|---:|---:|",
        *(_line(row) for row in rows),
        "",
        ", ".join(f"{name} {value}" for name, value in machine.items()) + ".",
        "",
    ]
    return "\n".join(lines)


def _line(row: Mapping[str, Any]) -> str:
    unit = f" {row['unit']}".rstrip()
    limit = next(
        (
            f"{sign} {number(row[key])}"
            for key, sign in (("at_most", "≤"), ("at_least", "≥"))
            if row.get(key) is not None
        ),
        "",
    )
    if row["met"] is False:
        limit += ", missed"
    best = "" if row["best"] is None else number(row["best"])
    name = row["name"].replace("|", "/")
    indent = "… " * name.startswith("  ")
    return (
        f"| {indent}{name.strip()} | {number(row['value'])}{unit} | {best} | {limit} |"
    )
