"""
Run the benchmarks, all or those named, and print one table.

    python -m benchmarks [NAME ...] [--json PATH] [--write]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from time import perf_counter

from benchmarks import document
from benchmarks.rows import Row, table


def main() -> int:
    """Return the exit code: 0 also where a goal is missed, for machines differ."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure what jaxmon costs."
    )
    parser.add_argument("name", nargs="*", help="one of: " + ", ".join(BENCHMARKS))
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write a file")
    parser.add_argument(
        "--write", action="store_true", help="put the results into the documents"
    )
    arguments = parser.parse_args()
    if unknown := set(arguments.name) - set(BENCHMARKS):
        parser.error(f"no benchmark is called {min(unknown)!r}")
    # A figure of the hooks, not of an accelerator; must be said before JAX starts.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    # One benchmark sets a provider of OpenTelemetry's, which is the process's.
    os.environ.setdefault("JAXMON_TRACES", "0")
    machine = describe()
    print(", ".join(f"{name} {value}" for name, value in machine.items()))
    found: dict[str, list[Row]] = {}
    for name in arguments.name or BENCHMARKS:
        started = perf_counter()
        found[name] = import_module(f"benchmarks.{name}").measure()
        spent = perf_counter() - started
        print(f"\n{name} ({spent:.0f} s)\n{table(found[name])}", flush=True)
    figures = {
        name: [{**asdict(row), "met": row.met} for row in rows]
        for name, rows in found.items()
    }
    if arguments.write:
        document.write(figures, machine)
    if arguments.json:
        text = json.dumps({"machine": machine, "benchmarks": figures}, indent=2)
        arguments.json.write_text(f"{text}\n", encoding="utf-8")
    return 0


def describe() -> dict[str, str]:
    """Return what figures depend on."""
    return {
        "commit": document.commit(),
        "date": datetime.now(UTC).date().isoformat(),
        "Python": platform.python_version(),
        "JAX": version("jax"),
        "processor": platform.machine(),
        "CPUs": str(os.cpu_count()),
    }


BENCHMARKS = (
    *("background", "calls", "compiles", "exposition", "house", "imports"),
    *("indicators", "jobs", "live_page", "loops", "misses", "memory", "otlp"),
    *("programs", "requests", "runs", "sampling", "scrape", "signatures", "steps"),
    "transfers",
)


if __name__ == "__main__":
    sys.exit(main())
