"""
Check jaxmon's figures on the accelerator of this machine.

    python -m tools.silicon [NAME ...] [--out DIRECTORY] [--seconds N]

Each check measures something in a process of its own, with a time limit, and compares
it with a value measured in another way: it passes, fails, or is not possible on this
machine. Changes no setting of a device. Writes ``report.md`` and all that the checks
printed to a directory. The exit code is 1 if a check failed.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path


# From a checkout in which jaxmon is not installed.
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [
    str(ROOT),
    *(str(ROOT / one) for one in ("alerts", "dashboards", "exporters")),
]

from tools.silicon import report, running  # noqa: E402
from tools.silicon.checks import CHECKS  # noqa: E402


def main() -> int:
    """Run the checks, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.silicon", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("name", nargs="*", help="checks to run; by default, all")
    parser.add_argument("--list", action="store_true", help="list the checks")
    parser.add_argument(
        "--out", type=Path, default=Path(".cache/silicon"), metavar="DIRECTORY"
    )
    parser.add_argument(
        "--seconds", type=float, default=540, help="limit of all checks together"
    )
    parser.add_argument("--inside", metavar="NAME", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        running.inside(arguments.inside, arguments.out)
        return 0
    if unknown := set(arguments.name) - set(CHECKS):
        parser.error(f"no check is called {min(unknown)!r}")
    if arguments.list:
        for name, check in CHECKS.items():
            needs = "GPU" if check.gpu else "any"
            print(f"{name:10} {needs:4} {check.seconds:4.0f} s  {check.text}")
        return 0
    return _run(arguments.name or list(CHECKS), arguments.out, arguments.seconds)


def _run(names: list[str], out: Path, seconds: float) -> int:
    out = out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    platform, device = running.device()
    print(device, flush=True)
    results = []
    for name in names:
        left = seconds - (time.monotonic() - started)
        if left < 0:
            why = f"the {seconds:g} s of --seconds have passed"
            result = running.Result(name, running.IMPOSSIBLE, why=why)
        else:
            result = running.run(name, out, platform, left)
        results.append(result)
        print("\n".join([report.line(result), *report.details(result)]), flush=True)
        # Each time, so that a run that is cut short leaves one.
        (out / "report.md").write_text(report.document(results, device))
    return int(any(one.status == running.FAILED for one in results))


if __name__ == "__main__":
    sys.exit(main())
