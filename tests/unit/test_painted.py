"""Colours of the report of `jaxmon explain`."""

import pytest

from jaxmon.cli.findings import COLOURS, painted
from jaxmon.facts.process import read
from jaxmon.screens.text import explanation
from jaxmon.symptoms.findings import about, find
from jaxmon.symptoms.symptom import Urgency
from tests.helpers.browser import Agent
from tests.helpers.findings import HEALTHY, function, recompiling
from tests.helpers.processes import Console, clean_environ, console


def test_findings_have_the_colour_of_their_urgency() -> None:
    """A verdict is coloured, its evidence not."""
    kind = {"outcome": "error", "start": "warm", "count": 50}
    failure = {"error": "StoreDown", "where": "store.py:8", "count": 50}
    route = {"finished": [kind], "failures": [failure]}
    functions = function(
        recompiles={"shape": 900},
        phases={"backend_compile": {"seconds": 400.0, "count": 900}},
    )
    snapshot = read({**HEALTHY, "requests": {"a": route}, "functions": functions})
    findings = find(snapshot)
    lines = explanation(snapshot, findings, worker="0", width=60)
    found = list(painted(lines, findings))

    assert [one.text for one in found] == lines
    assert found[0].bold
    by_colour = {
        colour: " ".join(one.text.strip() for one in found if one.colour == colour)
        for colour in COLOURS.values()
    }
    for urgency, colour in COLOURS.items():
        verdicts = [
            f"{number}. {one.verdict}"
            for number, one in enumerate(findings, 1)
            if about(one).urgency is urgency
        ]
        assert by_colour[colour] == " ".join(verdicts)
    assert {about(one).urgency for one in findings} >= {Urgency.FAILURE, Urgency.TIME}
    plain = (one.text for one in found[1:] if one.bold and not one.colour)
    headings = {text.partition(":")[0] for text in plain}
    assert {"FINDINGS", "COMPILE TIME", "REQUESTS"} <= headings


def colours(screen: Console, text: str) -> set[str]:
    """Return the colours of the line on *screen* with *text*."""
    rows = [number for number, line in enumerate(screen.lines()) if text in line]
    return {colour for colour, _ in screen.styles(rows[0])}


@pytest.mark.parametrize("option", [(), ("--all",)], ids=["list", "all"])
def test_findings_of_several_processes_are_coloured(run_dir, option):
    """They are on a terminal, unless NO_COLOR is set."""
    agents = [Agent(run_dir, slot) for slot in range(2)]
    agents[0].overview = recompiling("train.step", errors={"trace_error": 3})
    agents[1].overview = recompiling("serve.step")
    (run_dir / "agent-2.sock").symlink_to(run_dir / "none")
    verdicts = ("train.step failed 3", "serve.step was recompiled 39", "worker 2")
    seen = {}
    try:
        for name, environ in ("a terminal", {}), ("no colours", {"NO_COLOR": "1"}):
            words = ("-m", "jaxmon", "explain", *option)
            given = clean_environ(run_dir, **environ)
            with console(words, given, lines=60) as screen:
                assert screen.end() == 0
                seen[name] = [colours(screen, one) for one in verdicts]
    finally:
        for one in agents:
            one.server.stop()

    first, second, broken = seen["a terminal"]
    assert "red" in first
    assert "brown" in second  # as terminals call dark yellow
    assert "red" in broken
    assert seen["no colours"] == [{"default"}] * 3
