"""Colours of the report of `jaxmon explain`."""

from __future__ import annotations

from jaxmon.cli.painted import COLOURS, painted
from jaxmon.report.findings import find
from jaxmon.report.findings.finding import Urgency
from jaxmon.report.model import read
from jaxmon.report.text import explanation
from tests.reports import HEALTHY, function


def test_findings_have_the_colour_of_their_urgency() -> None:
    """
    A verdict is coloured as far as it goes over lines, its evidence and advice are not,
    headings stand out, and the text is the same.
    """
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
            if one.about.urgency is urgency
        ]
        assert by_colour[colour] == " ".join(verdicts)
    assert {one.about.urgency for one in findings} >= {Urgency.FAILURE, Urgency.TIME}
    plain = (one.text for one in found[1:] if one.bold and not one.colour)
    headings = {text.partition(":")[0] for text in plain}
    assert {"FINDINGS", "COMPILE TIME", "REQUESTS"} <= headings
