"""What programs contain in vain, and what the advice on it wins."""

from typing import Any, NamedTuple

import pytest

from tests.helpers.preloaded import run_preloaded
from tests.helpers.processes import ROOT


PROGRAM = ROOT / "tests" / "programs" / "contents.py"
TOPICS = {"captured": "captured", "selected": "selected"}
TOPICS |= {"uneven": "whole", "state": "whole"}


class Seen(NamedTuple):
    """The findings on a program that contains something, and what it costs."""

    findings: list[Any]
    cost: float


def seen(name: str, *arguments: str) -> Seen:
    command = ["-m", "tests.programs.contents", name, *arguments]
    devices = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    ended = run_preloaded(*command, env=devices, cwd=ROOT, optimised=True)
    found = ended.json()
    findings = [of for of in found["findings"] if of["topic"] == TOPICS[name]]
    return Seen(findings, found["cost"])


def line_of(name: str) -> str:
    """Return the line that ends with ``# name``."""
    lines = PROGRAM.read_text().splitlines()
    [number] = [n for n, line in enumerate(lines, 1) if line.endswith(f"# {name}")]
    return f"contents.py:{number}"


@pytest.mark.parametrize(
    ("name", "won"), [("captured", 0.5), ("selected", 0.8), ("uneven", 0), ("state", 0)]
)
def test_the_advice_wins_what_is_promised(name: str, won: float) -> None:
    """
    The fault has a finding with its line, and its twin none: that takes much less time,
    or a device holds a fourth of the bytes.
    """
    fault, mended = seen(name), seen(name, "--fixed")
    [finding] = fault.findings

    # The call of a function is known if it took long enough.
    assert finding["where"].endswith(line_of(name)) or name == "state"
    assert mended.findings == []
    if won:
        assert mended.cost < fault.cost * (1 - won)
        assert mended.cost < fault.cost - finding["seconds"] / 2
    else:
        assert mended.cost == pytest.approx(fault.cost / 4, rel=0.01)
