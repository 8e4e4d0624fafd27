"""Hangs: who causes one in a job, and whether XLA's time limit ends one."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from tools.silicon.findings import Finding, ImpossibleError, Measured, between, same
from tools.silicon.series import marked


PROGRAM = Path(__file__).with_name("spinning.py")
READY_SECONDS = 120
# The default is 30, and 3 is too early for all looks at the stacks to have been made.
AFTER_SECONDS, WHY_SECONDS = 10, 60
LIMIT_SECONDS, END_SECONDS = 10, 90


def measure_hang(place: Path) -> Measured:
    """
    Have one of two processes of a job compute for ever on the device, and ask
    `jaxmon job why`.

    The processes share a device: each runs programs of its own, without collectives.
    """
    coordinator, port = f"127.0.0.1:{_free_port()}", _free_port()
    environ = {
        **os.environ,
        "JAXMON_PORT": "off",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }
    with ExitStack() as stack:
        ranks = []
        for rank in range(2):
            output = stack.enter_context((place / f"rank-{rank}.txt").open("wb"))
            command = [str(PROGRAM), "job", coordinator, str(rank)]
            ranks.append(_started(stack, command, environ, output))
        output = stack.enter_context((place / "sidecar.txt").open("wb"))
        command = ["-m", "jaxmon", "exporter", "--host=127.0.0.1", f"--port={port}"]
        _started(stack, [*command, "--peer-access"], environ, output)
        deadline = time.monotonic() + READY_SECONDS
        while not all(
            "hangs" in (place / f"rank-{rank}.txt").read_text() for rank in range(2)
        ):
            ended = [one.returncode for one in ranks if one.poll() is not None]
            if ended or time.monotonic() > deadline:
                said = (place / "rank-1.txt").read_text()[-400:]
                msg = f"the job does not start ({ended or 'timeout'}): {said}"
                raise ImpossibleError(msg)
            time.sleep(0.5)
        command = [sys.executable, "-m", "jaxmon", "job", "why", "--json"]
        command += [
            f"--targets=127.0.0.1:{port}",
            f"--after={AFTER_SECONDS}",
            "--stacks",
        ]
        jobs: list[dict[str, Any]] = []
        deadline = time.monotonic() + WHY_SECONDS
        while time.monotonic() < deadline:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            (place / "why.json").write_text(done.stdout + done.stderr)
            jobs = json.loads(done.stdout)["jobs"] if done.stdout else []
            if jobs and jobs[0]["state"] == "hung":
                break
            time.sleep(2)
    suspects = jobs[0]["suspects"] if jobs else []
    return {
        "state": jobs[0]["state"] if jobs else "unknown",
        "ranks": suspects[0]["ranks"] if suspects else [],
        "where": Path(suspects[0]["where"] or "").name if suspects else "",
        "truth": marked(PROGRAM, "never ends"),
    }


def judge_hang(measured: Measured) -> Iterator[Finding]:
    """Expect the rank that computes for ever, and its line."""
    yield same("state of the job", measured["state"], "hung")
    yield same("ranks that the others wait for", measured["ranks"], [1])
    yield same("line", measured["where"], measured["truth"])


def measure_limit(place: Path) -> Measured:
    """Start an endless loop with XLA's time limit of an execution."""
    flag = f"--xla_gpu_execution_terminate_timeout={LIMIT_SECONDS}s"
    environ = {**os.environ, "XLA_FLAGS": flag}
    with (place / "spinning.txt").open("wb") as output, ExitStack() as stack:
        process = _started(stack, [str(PROGRAM), "alone"], environ, output)
        started = None
        deadline = time.monotonic() + READY_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            if started is None and "hangs" in (place / "spinning.txt").read_text():
                started = time.monotonic()
                deadline = started + END_SECONDS
            time.sleep(0.2)
        code = process.poll()
        seconds = None if started is None else time.monotonic() - started
    said = (place / "spinning.txt").read_text()
    if "Unknown flag" in said:
        msg = f"this jaxlib does not have {flag}"
        raise ImpossibleError(msg)
    return {"code": code, "seconds": seconds, "said": said[-600:]}


def judge_limit(measured: Measured) -> Iterator[Finding]:
    """Expect that the process was aborted, and not before the limit."""
    ended = measured["code"] is not None and measured["code"] < 0
    code = measured["code"]
    shown = "still running" if code is None else str(code)
    yield Finding("exit code", shown, "a signal", ended)
    least = LIMIT_SECONDS * 0.9
    yield between("seconds until its end", measured["seconds"], least, END_SECONDS - 5)


def _started(
    stack: ExitStack, arguments: list[str], environ: dict[str, str], output: IO[bytes]
) -> subprocess.Popen[bytes]:
    """Start Python with *arguments* until the end of *stack*."""
    process = subprocess.Popen(
        [sys.executable, "-u", *arguments],
        env=environ,
        stdout=output,
        stderr=subprocess.STDOUT,
    )
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
