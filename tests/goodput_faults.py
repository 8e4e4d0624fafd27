"""
Real runs that are killed and restarted five times, against the supervisor's ledger.

``python -m tests.goodput_faults`` runs one process with Orbax's checkpoints, and two of
`jax.distributed` with checkpoints of their own, and prints a table in Markdown of each:
what the ledger says, whole and up to the last write before each end, what the record
says, and what ml-goodput-measurement says of the ledger. Takes two minutes and 40 CPU
seconds.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

from tests.helpers import goodput
from tests.helpers.goodput import Fault, Supervised


FAULTS = (
    Fault("killed", 13),
    Fault("crashed", 22),
    Fault("stopped", 27),
    Fault("killed", 39),
    Fault("killed", 44),
    None,
)
STEPS, PAUSE = 60, 0.5
RUNS = (("one process, Orbax", 1, "orbax"), ("two processes, NumPy files", 2, "numpy"))


def main() -> None:
    """Print the tables."""
    for title, count, library in RUNS:
        with tempfile.TemporaryDirectory(prefix="jm-") as directory:
            run = Supervised(Path(directory), STEPS, count=count, library=library)
            for fault in FAULTS:
                run.attempt(fault, pause=PAUSE if run.attempts else 0.0)
            _print(title, run)
            _compare(run, directory)


def _print(title: str, run: Supervised) -> None:
    record, whole, recorded = run.record(), run.ledger(), run.ledger(as_recorded=True)
    _say(f"| {title} | ledger | up to the last write | record | |")
    _say("|---|---:|---:|---:|---|")
    rows = [
        (name, whole.seconds[name], expected, record.seconds.get(name, 0.0), name)
        for name, expected in recorded.seconds.items()
    ]
    sums = (sum(whole.seconds.values()), sum(recorded.seconds.values()), record.wall)
    resumes = (whole.resume_seconds, recorded.resume_seconds, record.resume_seconds)
    rows += [("sum", *sums, ""), ("until a step", *resumes, "")]
    for name, expected, then, found, activity in rows:
        right = abs(found - then) <= recorded.allowed(activity)
        _say(
            f"| {name} | {expected:.2f} s | {then:.2f} s | {found:.2f} s | "
            f"{'' if right else f'**NO**, {recorded.allowed(activity):.2f} s'} |"
        )
    lost = (whole.lost_steps, recorded.lost_steps, record.lost_steps)
    _say(f"| lost steps | {' | '.join(map(str, lost))} | |")
    ended = ", ".join(f"{n} {how}" for how, n in sorted(record.interruptions.items()))
    _say(f"| interruptions | {len(run.attempts) - 1} | | {ended} | |")
    _say("")


def _compare(run: Supervised, directory: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        theirs = goodput.figures(run, Path(directory), patch)
    ours = goodput.as_theirs(run.record())
    _say("| | ml-goodput-measurement | jaxmon |")
    _say("|---|---:|---:|")
    for name, found in theirs.items():
        if name == "interruptions":
            _say(f"| {name} | {found} | {ours[name]} |")
        else:
            _say(f"| {name} | {found:.2f} s | {ours[name]:.2f} s |")
    _say("")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
