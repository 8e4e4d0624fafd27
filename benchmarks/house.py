"""
What a reader has to take in: lines, modules, names, and what an event passes through.

Counts, so that a second run on any machine finds the same.
"""

from __future__ import annotations

import ast
import io
import json
import os
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.document import PRODUCT, ROOT
from benchmarks.rows import Row


RECORDED = ROOT / "tests" / "recorded" / "agent.json"
SECONDS = 300


def measure() -> list[Row]:
    """Return what the checkout holds, and modules by what passes through them."""
    sources = list(_sources(PRODUCT))
    classes = Counter(
        node.name
        for path in sources
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    )
    packages = {path.parent for path in (ROOT / "jaxmon").glob("*/__init__.py")}
    tests = list(_sources(["tests"]))
    events = _events()
    found = (
        ("lines of the product", sum(map(_lines, sources)), 102_000),
        ("… of these, code", sum(map(_code, sources)), 68_000),
        ("… modules", len(sources), 500),
        ("… packages of jaxmon", len(packages), 15),
        ("… class names used twice", _repeated(classes), 0),
        ("lines of the tests", sum(map(_lines, tests)), 98_000),
        ("modules loaded by instrument()", events["start"]["modules"], 120),
        ("… threads", events["start"]["threads"], 4),
        ("modules that a compile passes", events["passed"]["small compile"], 25),
        ("… a recompile", events["passed"]["recompile"], 30),
        ("… findings of a process", _passed(_find), 20),
        ("… all alerts of a site", _passed(_alert), None),
    )
    return [Row(name, value, "", at_most=limit) for name, value, limit in found]


def _sources(folders: Iterable[str]) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def _code(path: Path) -> int:
    """Return the lines with more than a comment, a docstring, or nothing."""
    source = path.read_text()
    ignored = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER}
    ignored |= {tokenize.INDENT, tokenize.DEDENT}
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in ignored:
            found.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        # A string that is a statement is documentation.
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            found.difference_update(range(node.lineno, (node.end_lineno or 0) + 1))
    return len(found)


def _repeated(names: Counter[str]) -> int:
    return sum(number - 1 for number in names.values())


def _events() -> Any:
    """Return what the program that the tests count by says."""
    environ = {**os.environ, "JAX_PLATFORMS": "cpu", "JAXMON_SOCKET": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.programs.own_calls"],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    return json.loads(done.stdout)


def _passed(act: Callable[[], object]) -> int:
    """Return how many modules of the product run while *act* does, once imported."""
    act()
    files: set[str] = set()
    ours = tuple(str(ROOT / folder) for folder in PRODUCT)

    def see(frame: Any, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(ours):
            files.add(frame.f_code.co_filename)

    sys.setprofile(see)
    try:
        act()
    finally:
        sys.setprofile(None)
    return len(files)


def _find() -> object:
    from jaxmon.facts.process import read
    from jaxmon.symptoms import findings

    recorded = json.loads(RECORDED.read_text())
    return findings.find(read(recorded["overview"], {"events": recorded["events"]}))


def _alert() -> object:
    from jaxmon_alerts import rules

    return rules.all_alerts()
