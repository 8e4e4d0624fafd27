"""
The exam of the findings: ``make exam``, or ``python -m tests.exam [NAME...]``.

A program of the sets `a`, `b`, … has a fault, and states it: lines that end with
``# fault``, regular expressions that a right finding matches (`WORDS`), and as its last
line on stdout the seconds by its own clock. ``--fixed`` runs its healthy twin.
The programs of `healthy` have no fault. Each runs under ``jaxmon run`` as a user's
would, and is judged by the findings at its exit; if it hangs until it kills itself, by
those that ``jaxmon explain`` has while it does, and if other processes of it use JAX,
by theirs (``--children``). ``--raw`` keeps the reports.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


DIRECTORY = Path(__file__).parent
_DEADLINE = 240.0
"""Seconds; the programs run for up to 40 s by themselves."""
_JAXMON = (sys.executable, "-m", "jaxmon")
_OTHERS = "`jaxmon run --children` observes these"
_HANGS = 33.0
"""Seconds after which it is read what a program does: one that hangs ends at 40 s."""


@dataclass(frozen=True)
class Run:
    """
    A run under jaxmon.

    Attributes:
        findings: most important first, without notes.
        answer: the sentence on how the program does.
        truth: what the program measured by its own clocks.
        report: as printed at exit, or why there is none.
        waiting: for what part of the time it waited for a processor.
    """

    findings: list[dict[str, Any]]
    answer: str
    truth: dict[str, Any]
    report: str
    waiting: float = 0.0


@dataclass(frozen=True)
class Fault:
    """What is wrong with a program: *lines* to blame, as ``file:line``, and *words*."""

    lines: frozenset[str]
    words: tuple[str, ...]

    def matches(self, finding: dict[str, Any]) -> bool:
        """Return whether *finding* concludes this, wherever it sees it."""
        text = _text(finding)
        return all(re.search(word, text, re.IGNORECASE) for word in self.words)

    def locates(self, finding: dict[str, Any]) -> bool:
        """Return whether *finding* names a line to blame."""
        return not self.lines.isdisjoint(re.findall(r"\w+\.py:\d+", _text(finding)))


@dataclass(frozen=True)
class Mark:
    """
    How a fault was found.

    Attributes:
        rank: of the finding that concludes the fault, from 1; 0 if it was missed.
        located: whether that finding names a line to blame.
        seconds: that the finding states.
    """

    rank: int
    located: bool
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether the first finding is right, with its line."""
        return self.rank == 1 and self.located


def programs(names: list[str]) -> Iterator[Path]:
    """Return the programs called *names*, all without any."""
    for path in sorted(DIRECTORY.glob("*/*.py")):
        if not names or path.stem in names or path.parent.name in names:
            yield path


def fault(program: Path) -> Fault:
    """Return the fault of *program* as it says it itself."""
    source = program.read_text()
    lines = frozenset(
        f"{program.name}:{number}"
        for number, line in enumerate(source.splitlines(), 1)
        if line.rstrip().endswith("# fault")
    )
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "WORDS":
            return Fault(lines, ast.literal_eval(node.value))
    msg = f"{program} has no WORDS"
    raise ValueError(msg)


def run(program: Path, *arguments: str, children: bool = False) -> Run:
    """Run *program* under jaxmon, and return what is reported of it."""
    with tempfile.TemporaryDirectory(prefix="exam-") as kept:
        agents = ["--run-dir", f"{kept}/agents"]
        observed = [*agents, *(["--children"] if children else [])]
        process = subprocess.Popen(
            [
                *(*_JAXMON, "run", "--no-tcp", "--report", "--summary-dir", kept),
                *(*observed, str(program), *arguments),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=program.parent,
        )
        hangs: list[dict[str, Any]] = []
        begun, wait = time.monotonic(), _HANGS
        while True:
            try:
                out, errors = process.communicate(timeout=wait)
                break
            except subprocess.TimeoutExpired:
                hangs, wait = _explained(agents) or hangs, 1.0
                if time.monotonic() - begun > _DEADLINE:
                    process.kill()
        summaries = [json.loads(path.read_text()) for path in Path(kept).glob("*.json")]
    if not summaries and not children and _OTHERS in errors:
        return run(program, *arguments, children=True)
    # A large one is that of the process which does the work.
    summaries.sort(key=lambda summary: len(json.dumps(summary)), reverse=True)
    found = [summary["findings"] for summary in summaries] or [hangs]
    ranks = list(itertools.zip_longest(*found))
    distinct = {
        (finding["topic"], finding["where"]): finding
        for rank in reversed(ranks)
        for finding in reversed(rank)
        if finding is not None and finding["urgency"] != "note"
    }
    return Run(
        list(distinct.values())[::-1],
        summaries[0]["answer"]["text"] if summaries else "",
        _truth(out),
        errors if summaries else f"{errors}{_printed(hangs)}",
        (summaries[0]["usual"]["waiting"] or 0.0) if summaries else 0.0,
    )


def _explained(agents: list[str]) -> list[dict[str, Any]]:
    """Return what an engineer on call sees of a program that runs, none in trouble."""
    asked = subprocess.run(
        [*_JAXMON, "explain", "--json", *agents],
        capture_output=True,
        text=True,
        check=False,
    )
    return json.loads(asked.stdout)["findings"] if asked.stdout.strip() else []


def _printed(findings: list[dict[str, Any]]) -> str:
    """Return the findings on a program that hangs, as a report has them."""
    return "".join(
        f"{number}. {finding['verdict']}\n"
        + "".join(f"     {line}\n" for line in finding["evidence"])
        + f"   Advice: {finding['action']}\n"
        for number, finding in enumerate(findings, 1)
    )


def mark(of: Fault, findings: list[dict[str, Any]]) -> Mark:
    """Return how *findings* found the fault, by the best of them."""
    right = [rank for rank, found in enumerate(findings, 1) if of.matches(found)]
    located = [rank for rank in right if of.locates(findings[rank - 1])]
    rank = min(located or right, default=0)
    seconds = findings[rank - 1]["seconds"] if rank else 0.0
    return Mark(rank, bool(located), seconds)


def main() -> None:
    """Print a table of the programs, and the totals."""
    options = argparse.ArgumentParser(prog="python -m tests.exam")
    options.add_argument("--raw", type=Path, help="directory for the reports")
    options.add_argument("names", nargs="*", help="of programs or sets; else all")
    given = options.parse_args()
    _row("Program", "Rank", "Line", "Seconds", "Lost", "First finding", "Of the twin")
    _row(*["---"] * 7)
    marks, accused = [], []
    for program in programs(given.names):
        healthy = program.parent.name == "healthy"
        ran = run(program)
        twin = ran if healthy else run(program, "--fixed")
        _keep(given.raw, program, "", ran)
        accused.append(bool(twin.findings))
        if healthy:
            _row(program.stem, "", "", "", "", "", _first(twin))
            continue
        _keep(given.raw, program, "-fixed", twin)
        got = mark(fault(program), ran.findings)
        marks.append(got.passed)
        lost = ran.truth.get("lost")
        _row(
            program.stem,
            str(got.rank or "missed"),
            "right" if got.located else "",
            f"{got.seconds:.1f}" if got.seconds else "",
            f"{lost:.1f}" if lost is not None else "",
            _first(ran),
            _first(twin),
        )
    sys.stdout.write(
        f"\nFound first, with the right line: {sum(marks)} of {len(marks)} faults.\n"
        f"Accused: {sum(accused)} of {len(accused)} healthy programs and twins.\n"
    )


def _row(*cells: str) -> None:
    sys.stdout.write(f"| {' | '.join(cells)} |\n")
    sys.stdout.flush()


def _keep(directory: Path | None, program: Path, suffix: str, ran: Run) -> None:
    if directory is not None:
        kept = directory / program.parent.name
        kept.mkdir(parents=True, exist_ok=True)
        truth = f"truth: {json.dumps(ran.truth)}\nanswer: {ran.answer}\n"
        (kept / f"{program.stem}{suffix}.txt").write_text(truth + ran.report)


def _truth(out: str) -> dict[str, Any]:
    last = out.strip().rsplit("\n", 1)[-1]
    return json.loads(last) if last.startswith("{") else {}


def _text(finding: dict[str, Any]) -> str:
    parts = [finding["where"], finding["verdict"], *finding["evidence"]]
    return " ".join([*parts, finding["action"]])


def _first(ran: Run) -> str:
    return ran.findings[0]["verdict"] if ran.findings else ""


if __name__ == "__main__":
    main()
