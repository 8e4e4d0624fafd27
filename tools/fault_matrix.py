"""
Break what the sidecar monitors, one thing at a time, and print what it exports.

    python tools/fault_matrix.py [--only TEXT] [--jobs N] [--output FILE]

Each row has its own sidecar process, with a fake driver library, fake agents on Unix
sockets, and misbehaving servers. The table lists the fault, the output, the time to
recovery and the slowest scrape. The exit code is 1 if any output was unexpected.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path


sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.faults import rows
from tests.faults.matrix import Row, run_all, table
from tests.faults.stage import Outcome


def main() -> None:
    """Run the rows that were chosen."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--only", default="", help="rows whose name contains this text")
    parser.add_argument("--jobs", type=int, default=2 * (os.cpu_count() or 1))
    parser.add_argument("--output", type=Path, help="write the table there as well")
    arguments = parser.parse_args()
    chosen = [row for row in rows.ALL if arguments.only.lower() in row.name.lower()]
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="jm-") as library:
        outcomes = run_all(chosen, Path(library), jobs=arguments.jobs, done=_tell)
    text = table(chosen, outcomes)
    print(text)
    if arguments.output:
        arguments.output.write_text(f"{text}\n")
    failed = sum(bool(one.failed) for one in outcomes)
    skipped = sum(bool(one.skipped) for one in outcomes)
    print(
        f"\n{len(chosen)} rows in {time.monotonic() - began:.0f} s: "
        f"{failed} failed, {skipped} not tried"
    )
    if failed or not chosen:
        sys.exit(1)


def _tell(row: Row, outcome: Outcome) -> None:
    state = "FAILED" if outcome.failed else "skipped" if outcome.skipped else "ok"
    print(f"{state:8}{row.name}", file=sys.stderr)


if __name__ == "__main__":
    main()
