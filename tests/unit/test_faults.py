"""Faults that the demo provokes for a while."""

import os
import re
import sys
from pathlib import Path

from jaxmon.cli.gameday.demo import Fault
from jaxmon_alerts.gameday.children import Children
from tests.helpers.processes import until


PROGRAM = """
import signal
for name in ("SIGUSR1", "SIGUSR2"):
    number = getattr(signal, name)
    signal.signal(number, lambda *_, name=name: print(name, flush=True))
print("ready", flush=True)
while True:
    signal.pause()
"""


def test_a_program_is_told_once_of_begin_and_end(tmp_path: Path) -> None:
    """One signal begins the fault when it is due, another ends it; no more are sent."""
    fault = Fault("stall", after=10, lasting=5)
    out = tmp_path / "broken.out"

    with Children(os.environ, tmp_path) as children:
        child = children.start("broken", [sys.executable, "-c", PROGRAM])
        child.says(re.compile("(ready)"), seconds=90)
        for elapsed in (0.0, 9.9):
            fault.apply(child, elapsed)
        for elapsed, expected in ((10.0, "SIGUSR1"), (15.0, "SIGUSR2")):
            fault.apply(child, elapsed)
            fault.apply(child, elapsed + 1)
            until(lambda name=expected: name in out.read_text(), expected)  # type: ignore[misc]

    assert out.read_text().split() == ["ready", "SIGUSR1", "SIGUSR2"]


def test_a_fault_says_what_comes_next() -> None:
    """Before, while and after it lasts, one reads how long until things change."""
    fault = Fault("stall", after=10, lasting=5)

    assert fault.place == "training"
    assert fault.description(4) == "fault stall starts in 0:00:06"
    assert re.fullmatch(r"fault stall: .*; ends in 0:00:03", fault.description(12))
    assert fault.description(20) == "fault stall ended 0:00:05 ago"
