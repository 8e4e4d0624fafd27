"""Runs a check in a process of its own, within its time."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from tools.silicon.checks import CHECKS, Check
from tools.silicon.findings import Finding, ImpossibleError


ROOT = Path(__file__).resolve().parents[2]
PASSED, FAILED, IMPOSSIBLE = "passed", "failed", "not possible here"

_PROBE = """
import jax
found = jax.local_devices()
print(found[0].platform, len(found), found[0].device_kind, sep="\\n")
"""


class Result(NamedTuple):
    """
    What came of a check.

    Attributes:
        name: of the check.
        status: one of the three.
        seconds: that it took.
        why: it failed without findings, or is not possible.
        findings: its comparisons.
    """

    name: str
    status: str
    seconds: float = 0
    why: str = ""
    findings: Sequence[Finding] = ()


def environment(run_dir: str = "") -> dict[str, str]:
    """Return the environment of all processes: this checkout comes first."""
    path = os.environ.get("PYTHONPATH", "")
    ours = os.pathsep.join(
        [str(ROOT), *(str(ROOT / one) for one in ("alerts", "dashboards", "exporters"))]
    )
    return {
        **os.environ,
        "PYTHONPATH": f"{ours}{os.pathsep}{path}" if path else ours,
        **({"JAXMON_RUN_DIR": run_dir} if run_dir else {}),
    }


def device() -> tuple[str, str]:
    """Return the platform of JAX's default device, and what is known of it."""
    command = [sys.executable, "-c", _PROBE]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment()
    )
    if done.returncode:
        return "", f"JAX does not start: {done.stderr.strip()[-300:]}"
    platform, count, kind = done.stdout.split("\n")[:3]
    return platform, f"{count} x {kind} ({platform})"


def run(name: str, out: Path, platform: str, most: float = math.inf) -> Result:
    """Run the check *name* for at most *most* seconds; its files are in *out*."""
    check = replace(CHECKS[name], seconds=min(CHECKS[name].seconds, most))
    if check.gpu and platform != "gpu":
        return Result(name, IMPOSSIBLE, why=f"no GPU: JAX runs on {platform or 'none'}")
    place = out / name
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    run_dir = tempfile.mkdtemp(prefix="jm-")
    started = time.monotonic()
    try:
        ended = _finished(name, check, place, run_dir)
    finally:
        shutil.rmtree(run_dir, ignore_errors=True)
    spent = time.monotonic() - started
    if (reason := place / "impossible.txt").exists():
        return Result(name, IMPOSSIBLE, spent, reason.read_text())
    if not (measured := place / "measured.json").exists():
        said = (place / "output.txt").read_text(errors="replace").strip()
        return Result(name, FAILED, spent, f"{ended}: {said[-600:]}")
    return judged(name, json.loads(measured.read_text()), spent)


def judged(name: str, measured: dict[str, object], seconds: float = 0) -> Result:
    """Return the result of a check that *measured* this."""
    findings = tuple(CHECKS[name].judge(measured))
    wrong = any(one.right is False for one in findings)
    return Result(name, FAILED if wrong else PASSED, seconds, "", findings)


def inside(name: str, place: Path) -> None:
    """Measure in this process, and leave in *place* what was measured."""
    try:
        measured = CHECKS[name].measure(place)
    except ImpossibleError as error:
        (place / "impossible.txt").write_text(str(error))
        return
    (place / "measured.json").write_text(json.dumps(measured, indent=1))


def _finished(name: str, check: Check, place: Path, run_dir: str) -> str:
    """Return how the process of *check* ended; with it end those that it started."""
    command = [sys.executable, "-m", "tools.silicon", "--inside", name]
    with (place / "output.txt").open("wb") as output:
        process = subprocess.Popen(
            [*command, "--out", str(place)],
            cwd=ROOT,
            env={**environment(run_dir), **check.environ},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return f"exit code {process.wait(check.seconds)}"
        except subprocess.TimeoutExpired:
            return f"not finished after {check.seconds:g} s"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
