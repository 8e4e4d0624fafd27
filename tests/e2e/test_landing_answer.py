"""What the landing page says first: whether users are all right, findings, charts."""

import json
import re
import time

from tests.helpers.browser import (
    CONTRAST,
    HOSTILE,
    LONG,
    PHONE,
    Agent,
    answer,
    cells,
    console,
    findings,
    open_page,
    text,
)
from tests.helpers.findings import recompiling
from tests.helpers.processes import http_get, until


def test_findings_come_first_and_say_what_to_do(chrome, exporter, agent, run_dir):
    """
    The most urgent finding is first, with process, gain, advice and runbook; one that
    several processes have is there once, one without any says so, one that does not
    respond as well.
    """
    agent.overview = recompiling("train.step", errors={"trace_error": 3})
    second, third, fourth = (Agent(run_dir, number) for number in (1, 2, 4))
    second.overview = {
        **recompiling("train.step", errors={"trace_error": 3}),
        "errors": {},
    }
    second.overview["functions"]["train.step"]["errors"] = {}
    third.overview["schema"] = 99
    (run_dir / "agent-3.sock").symlink_to(run_dir / "none")
    try:
        open_page(chrome, exporter("--port", "0").url)
        until(lambda: len(findings(chrome)) > 3, "the findings")
        failure, storm, *others = findings(chrome)
        link = chrome.execute_script(
            "const link = document.querySelector('#findings a');"
            "return [link.getAttribute('href'), link.rel]"
        )
    finally:
        second.server.stop()
        third.server.stop()
        fourth.server.stop()

    assert failure.startswith("failure train.step failed 3 times: trace_error.")
    assert " Worker 0 (pid 7) · " in failure
    assert storm.startswith("time train.step was recompiled 39 times because")
    assert "Pad to a few fixed sizes" in storm
    assert " · To win back: up to 39.0 % of the time · Debug" in storm
    assert "Workers 0, 1; figures of worker 0 · " in storm
    assert storm.endswith("Runbook JaxmonRecompileStorm")
    assert link == [
        "https://github.com/jaxmon/jaxmon/blob/main/runbooks/JaxmonRecompileStorm.md",
        "noreferrer",
    ]
    assert re.fullmatch(
        r"Worker 2 \(pid \d+\) cannot be read: its schema is 99; this jaxmon reads up "
        r"to 1: upgrade it\.",
        others[1],
    )
    assert others[2:] == [
        "Worker 3 does not respond: its socket is a symbolic link.",
        "Worker 4: Nothing to fix stands out.",
    ]
    assert re.fullmatch(r"read \d+ s ago", text(chrome, "#findings-age"))
    assert chrome.execute_script(CONTRAST) == []
    assert console(chrome) == []


def test_findings_of_hostile_agents_are_text(chrome, exporter, agent):
    """Markup in a finding is shown as text, and links lead only to runbooks."""
    agent.overview = recompiling(HOSTILE, errors={"trace_error": 3})
    agent.overview["errors"] = {"oom_reports": ["javascript:alert(1)", HOSTILE, LONG]}
    agent.overview["functions"][LONG + "x" * 300] = {"errors": {HOSTILE: 4}}
    open_page(chrome, exporter("--port", "0").url, PHONE)
    until(lambda: findings(chrome), "the findings")

    shown = " ".join(findings(chrome))
    assert HOSTILE in shown
    assert chrome.execute_script("return document.querySelectorAll('img').length") == 0
    assert "owned" not in chrome.title
    hrefs = chrome.execute_script(
        "return [...document.querySelectorAll('#findings a')].map(a => a.href)"
    )
    assert hrefs
    assert all(re.fullmatch(r"https://github\.com/[\w/-]+\.md", one) for one in hrefs)
    scroll, client = chrome.execute_script(
        "const root = document.documentElement;"
        "return [root.scrollWidth, root.clientWidth]"
    )
    assert scroll == client
    assert console(chrome) == []


def test_findings_that_may_not_be_seen_have_a_reason(chrome, exporter, agent):
    """In place of findings, the page says why there are none; the rest is there."""
    agent.overview = recompiling("train.step", errors={"trace_error": 3})
    open_page(chrome, exporter("--port", "0", "--findings", "off").url)
    until(lambda: findings(chrome), "the reason")
    assert findings(chrome) == ["Findings are disabled by --findings off."]
    assert cells(chrome, "functions")


def test_planted_500s_are_the_first_thing_that_the_page_says(chrome, exporter, agent):
    """
    160 failed requests are the answer at the top in words, in the title, in the tiles
    and in the table, on a phone as well; they are over when requests succeed again.
    """
    agent.respond(500)
    agent.started = time.time() - 30
    open_page(chrome, exporter("--port", "0").url, PHONE)
    until(lambda: answer(chrome)[0] == "fine", "the answer")
    fine = r"Yes, in the last \d+ s: .* requests a second, and none fails\.$"
    assert re.search(fine, answer(chrome)[1])
    assert text(chrome, "#t-failed") == "0 %"
    agent.respond(160, "error")
    until(lambda: answer(chrome)[0] == "failing", "the failure")
    _, said = answer(chrome)
    assert re.match(
        "No: 160 of 660 requests to POST /predict failed in the last ", said
    )
    assert chrome.title.startswith("No · jaxmon")
    assert text(chrome, "#t-failed") == "24.2 %"
    assert text(chrome, "#t-errors") == "160"
    (row,) = cells(chrome, "requests")
    assert row[0].split("\n") == ["POST /predict", "worker 0"]
    assert row[2].split("\n") == ["24.2 %", "160 in all"]
    assert chrome.execute_script(CONTRAST) == []
    assert console(chrome) == []


def test_a_process_opens_alone(chrome, exporter, agent, other):
    """
    The row of a process leads to a page of its own, with its answer, cause and
    functions, which leads back; that of a process that is not there says so.
    """
    other.calls = {"other.step": 5.0}
    other.started = time.time() - 30
    other.respond(20, "error")
    failure = {"error": "StoreDown", "where": "store.py:8", "count": 20}
    kind = {"outcome": "error", "start": "warm", "count": 20}
    of = {"POST /predict": {"finished": [kind], "failures": [failure]}}
    other.overview["requests"] = of
    url = exporter("--port", "0").url
    open_page(chrome, url)
    until(lambda: len(cells(chrome, "agents")) == 2, "two processes")
    chrome.find_element("link text", "worker 1").click()
    until(lambda: answer(chrome)[0] == "failing", "the answer")
    cause = lambda: text(chrome, "#answer-because")  # noqa: E731 - read twice
    until(cause, "the cause")
    assert cause().startswith("StoreDown at store.py:8: 20 times")
    assert "other.step" in [row[0] for row in cells(chrome, "functions")]
    assert len(cells(chrome, "agents")) == 1
    # The sidecar has no samples of a process that it has just met.
    assert [one for one in console(chrome) if "api/history" not in one] == []
    chrome.get(f"{url}?worker=7")
    until(lambda: "Worker 7 does not run here." in text(chrome, "#lost"), "the reason")
    chrome.find_element("link text", "All processes").click()
    until(lambda: len(cells(chrome, "agents")) == 2, "two processes again")


def test_without_marks_the_page_says_what_to_mark(chrome, exporter, agent):
    """Users may be anything then, so that the page is neither green nor red."""
    open_page(chrome, exporter("--port", "0").url)
    until(lambda: text(chrome, "#answer-advice"), "the advice")
    assert answer(chrome) == (
        "unknown",
        "Not known: no program here marks its requests or steps.",
    )
    assert "@jaxmon.request" in text(chrome, "#answer-advice")


def test_charts_begin_with_history_and_say_what_they_show(chrome, exporter, agent):
    """Earlier samples are drawn, and described; a chart without data is not there."""
    agent.respond(50)
    agent.started = time.time() - 5
    running = exporter("--port", "0")
    history = f"{running.url}api/history"
    until(lambda: len(json.loads(http_get(history))["times"]) > 1, "two samples")
    open_page(chrome, running.url)
    # As far as there are samples, rather than an empty quarter of an hour.
    until(lambda: text(chrome, "#charts-title") == "The last 2 minutes", "the charts")
    labels = chrome.execute_script(
        "return [...document.querySelectorAll('.chart')].filter(one => !one.hidden)"
        ".map(one => one.querySelector('.plot').getAttribute('aria-label'))"
    )
    assert labels[0].startswith("Requests a second: now ")
    assert not any("Accelerators" in one or "Steps" in one for one in labels)
    drawn = "return document.querySelectorAll('.chart:not([hidden]) canvas').length"
    assert chrome.execute_script(drawn) == len(labels)
    assert console(chrome) == []
