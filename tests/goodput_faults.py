"""
Real runs that are killed and restarted five times, against the supervisor's ledger.

``python -m tests.goodput_faults`` runs one process with checkpoints of its own, and two
with gloo's collectives and Orbax's checkpoints, and prints a table in Markdown of each:
what the ledger says, what the record says, and by how much they may differ. Takes two
minutes and 60 CPU seconds.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.goodput_runs import Fault, Supervised


FAULTS = (
    Fault("killed", 13),
    Fault("crashed", 22),
    Fault("stopped", 27),
    Fault("killed", 39),
    Fault("killed", 44),
    None,
)
STEPS, PAUSE = 60, 0.5
RUNS = (
    ("one process, NumPy files", 1, "numpy"),
    ("two processes, gloo, Orbax", 2, "orbax"),
)


def main() -> None:
    """Print the tables."""
    for title, count, library in RUNS:
        with tempfile.TemporaryDirectory(prefix="jm-") as directory:
            run = Supervised(Path(directory), STEPS, count=count, library=library)
            for fault in FAULTS:
                run.attempt(fault, pause=PAUSE if run.attempts else 0.0)
            _print(title, run)


def _print(title: str, run: Supervised) -> None:
    record, ledger = run.record(), run.ledger()
    rows = [
        (name, expected, record.seconds.get(name, 0.0), ledger.allowed(name))
        for name, expected in ledger.seconds.items()
    ]
    rows += [
        ("sum", sum(ledger.seconds.values()), record.wall, ledger.tolerance),
        ("to resume", ledger.resume_seconds, record.resume_seconds, ledger.tolerance),
    ]
    _say(f"| {title} | ledger | record | within | |")
    _say("|---|---:|---:|---:|---|")
    for name, expected, found, allowed in rows:
        right = "yes" if abs(found - expected) <= allowed else "NO"
        _say(
            f"| {name} | {expected:.2f} s | {found:.2f} s | {allowed:.2f} s | {right} |"
        )
    _say(f"| lost steps | {ledger.lost_steps} | {record.lost_steps} | | |")
    ended = ", ".join(f"{n} {how}" for how, n in sorted(record.interruptions.items()))
    _say(f"| interruptions | {len(run.attempts) - 1} | {ended} | | |")
    _say("")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
