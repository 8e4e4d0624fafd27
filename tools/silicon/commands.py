"""Commands that users run first: the doctor and the demo."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from tools.silicon.findings import Finding, ImpossibleError, Measured, figure, same


DEMO_SECONDS = 30
DEMO_NEEDS = ("flax", "optax")


def measure_doctor(place: Path) -> Measured:
    """Run the doctor."""
    done = _jaxmon(place, "doctor", "--json", "--verbose")
    found = json.loads(done.stdout)
    return {
        "code": done.returncode,
        "statuses": dict(Counter(one["status"] for one in found)),
        "failures": [one["text"] for one in found if one["status"] == "failure"],
        "warnings": [one["text"] for one in found if one["status"] == "warning"],
    }


def judge_doctor(measured: Measured) -> Iterator[Finding]:
    """Expect no failure."""
    yield same("exit code", measured["code"], 0)
    yield same("failures", measured["failures"], [])
    yield figure("warnings", measured["warnings"])
    yield figure("by status", measured["statuses"])


def measure_demo(place: Path) -> Measured:
    """Run training and serving with a sidecar."""
    missing = [name for name in DEMO_NEEDS if find_spec(name) is None]
    if missing:
        msg = f"the demo needs {', '.join(missing)}"
        raise ImpossibleError(msg)
    done = _jaxmon(place, "demo", f"--duration={DEMO_SECONDS}", "--no-prometheus")
    return {"code": done.returncode, "end": done.stdout[-300:]}


def judge_demo(measured: Measured) -> Iterator[Finding]:
    """Expect that all programs ran until the end."""
    yield same("exit code", measured["code"], 0)
    if measured["code"]:
        yield figure("its last words", measured["end"])


def _jaxmon(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "jaxmon", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    (place / f"{arguments[0]}.txt").write_text(done.stdout + done.stderr)
    return done
