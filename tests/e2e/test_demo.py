"""`jaxmon demo` as a user starts it."""

import json
import os
import pty
import re
import select
import signal
import socket
import termios
import time
from pathlib import Path

import psutil
import pytest

from jaxmon.catalog import JIT_CALLS
from tests.helpers.commands import DEADLINE, demo, read_until
from tests.helpers.processes import http_get, run_python, until


@pytest.fixture
def short_tmp(run_dir: Path) -> Path:
    """A short directory for the demo's own, which holds Unix sockets."""
    return run_dir


def test_demo_measures_and_leaves_nothing(short_tmp: Path) -> None:
    """
    Totals are above zero and fit together, and the command that explains one of the
    programs works as it is printed; processes, sockets and files are gone.

    Without Prometheus it says what is missing, once, and does the rest.
    """
    with demo(short_tmp, PATH=str(short_tmp)) as process:
        started = read_until(process, "serving metrics")
        urls = re.findall(r"http://\S+", started)
        children = psutil.Process(process.pid).children()
        for url, function in zip(urls[2:], ("train_step", "forward"), strict=True):
            call = rf'^{JIT_CALLS.name}\{{function="__main__.{function}"\}} [1-9]'
            until(
                lambda url=url, call=call: re.search(call, http_get(url), re.MULTILINE),  # type: ignore[misc]
                f"calls of {function}",
            )
        told = re.search("jaxmon (explain .*)", read_until(process, "explanation"))
        assert told is not None
        explained = run_python("-m", "jaxmon", *told[1].split()).ok().out
        until(lambda: has_done_enough(urls[0]), "steps, calls and recompiles")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=DEADLINE)

    assert process.returncode == 0, err
    assert "COMPILE TIME: " in explained
    assert started.count("Alerts are not shown: install prometheus and") == 1
    totals = totals_in(out)
    assert totals["steps"] > 10
    assert totals["calls"] > totals["steps"]
    assert totals["compiles"] > 3
    assert totals["recompiles"] > 0
    assert totals["compile time"] > 0
    assert 50 < totals["hit rate"] <= 100
    table = dict(re.findall(r"^ +__main__\.(\w+) +([\d,]+) ", out, re.MULTILINE))
    assert number(table["train_step"]) == totals["steps"]
    assert number(table["forward"]) > 0
    _, _, answer = out.partition("\nAre users all right?\n")
    assert re.match("(Yes(, in the last .*)?|Not quite|No): ", answer), answer

    assert len(children) == 3
    assert not any(child.is_running() for child in children)
    assert list(short_tmp.iterdir()) == []
    for url in urls:
        assert not is_listening(url)


@pytest.mark.exhaustive
def test_terminal_shows_a_table_until_interrupted(short_tmp: Path) -> None:
    """On a terminal the table is drawn in place, and Ctrl-C ends the demo in order."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    try:
        with demo(short_tmp, "--no-prometheus", terminal=theirs) as process:
            os.close(theirs)
            seen = read_screen(ours, b"train_step")
            process.send_signal(signal.SIGINT)
            seen += read_screen(ours, b"compile time")
            seen += read_to_end(ours)
            process.wait(DEADLINE)
    finally:
        os.close(ours)

    assert process.returncode == 0, seen
    assert seen.count(b"\x1b[?1049h") == seen.count(b"\x1b[?1049l") == 1
    assert seen.count(b"\x1b[?25l") == seen.count(b"\x1b[?25h") == 1
    assert b"Totals" in seen
    assert list(short_tmp.iterdir()) == []


@pytest.mark.exhaustive
def test_death_of_a_child_is_told(short_tmp: Path) -> None:
    """A workload that dies ends the demo with its name, its end and exit code 1."""
    with demo(short_tmp, "--no-prometheus") as process:
        read_until(process, "serving metrics")
        workloads = psutil.Process(process.pid).children()
        training = next(
            c
            for c in workloads
            if "jaxmon_alerts.gameday.programs.train" in c.cmdline()
        )
        training.kill()
        _, err = process.communicate(timeout=DEADLINE)

    assert process.returncode == 1
    assert "training exited with signal 9" in err
    assert not any(child.is_running() for child in workloads)


def has_done_enough(page: str) -> bool:
    """Return whether the sidecar, too, has read what the totals are asked for."""
    summary = json.loads(http_get(f"{page}api/summary"))
    calls = {one["name"]: one["calls"] for one in summary["functions"]}
    ours = [calls.get(f"__main__.{name}", 0) for name in ("train_step", "forward")]
    return min(ours) > 10 and bool(summary["totals"]["recompiles"])


def totals_in(out: str) -> dict[str, float]:
    """Return the figures below "Totals"."""
    _, _, below = out.partition("\nTotals\n")
    return {
        label: number(value)
        for label, value in re.findall(
            r"^ +(\w+(?: \w+)?) +([\d,.]+)", below, re.MULTILINE
        )
    }


def number(text: str) -> float:
    return float(text.replace(",", ""))


def is_listening(url: str) -> bool:
    host, port = url.split("/")[2].split(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def read_screen(terminal: int, text: bytes) -> bytes:
    """Return what *terminal* shows up to and including a piece with *text*."""
    seen, deadline = b"", time.monotonic() + DEADLINE
    while text not in seen:
        ready, _, _ = select.select([terminal], [], [], deadline - time.monotonic())
        assert ready, seen
        seen += os.read(terminal, 4096)
    return seen


def read_to_end(terminal: int) -> bytes:
    """Return what *terminal* shows until its last writer is gone."""
    seen = b""
    while True:
        try:
            piece = os.read(terminal, 4096)
        except OSError:  # Linux says EIO once nobody holds the other side.
            return seen
        if not piece:
            return seen
        seen += piece
