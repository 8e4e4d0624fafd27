"""The landing page in a real browser: content, updates, phones, hostile names."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jaxmon import catalog
from jaxmon.exposition.families import (
    Family,
    Histogram,
    gauge,
    histograms,
    series,
)
from jaxmon.http.server import Response, Server, metrics_handler
from tests.browser import (
    DESKTOP,
    PHONE,
    accessibility_faults,
    console,
    require_axe,
    resize,
)
from tests.fakes.nvml.build import build
from tests.support import (
    clean_environ,
    free_port,
    http_get,
    until,
)


if TYPE_CHECKING:
    from selenium.webdriver import Chrome


JAXMON = str(Path(sys.executable).with_name("jaxmon"))
HOSTILE = '<img src=x onerror="document.title=\'owned\'">"\\'
LONG = "package.module.Class.method_with_a_very_long_name." * 4


@pytest.fixture
def exporter(run_dir: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Return a function that starts a sidecar; its address is in the attribute url."""
    with ExitStack() as stack:

        def start(*arguments: str, **environ: str) -> Any:
            process = subprocess.Popen(
                [JAXMON, "exporter", "--agents-interval", "0.2", *arguments],
                env=clean_environ(run_dir, **environ),
                stderr=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.terminate)
            assert process.stderr is not None
            for line in process.stderr:
                if found := re.search(r"http://localhost:\d+/", line):
                    process.url = found[0]  # type: ignore[attr-defined]
                    return process
            raise AssertionError(process.wait())

        yield start


class Agent:
    """An agent whose figures, requests, steps and overview a test sets."""

    def __init__(self, run_dir: Path, slot: int = 0) -> None:
        self.calls = {"train.step": 100.0}
        self.extra: list[Family] = []
        self.latency = {
            outcome: Histogram(
                catalog.REQUEST_SECONDS, "POST /predict", outcome, "warm"
            )
            for outcome in ("success", "error")
        }
        self.serves = False
        self.started = time.time() - 7300
        self.overview: dict[str, Any] = {"schema": 1, "functions": {}}
        scrape = Histogram(catalog.SCRAPE_SECONDS)
        self.server = Server(
            {
                "/metrics": metrics_handler(self._page, scrape),
                "/debug/overview": lambda _: Response(
                    json.dumps(self.overview).encode()
                ),
                "/debug/events": lambda _: Response(b'{"events": []}'),
            }
        )
        self.server.listen_unix(run_dir / f"agent-{slot}.sock")
        self.server.start()

    def respond(self, count: int, outcome: str = "success") -> None:
        """Serve *count* requests."""
        self.serves = True
        for _ in range(count):
            self.latency[outcome].observe(0.1)

    def _page(self) -> list[Family]:
        calls, hits = catalog.JIT_CALLS, catalog.JIT_CACHE_HITS
        items = list(self.calls.items())
        return [
            Family(calls, [(series(calls, name), value) for name, value in items]),
            Family(hits, [(series(hits, name), value * 0.9) for name, value in items]),
            *self.extra,
            *(
                [histograms(catalog.REQUEST_SECONDS, self.latency.values())]
                * self.serves
            ),
            gauge(catalog.PROCESS_START_TIME_SECONDS, self.started),
            gauge(catalog.COMPILES, 3, "train.step", "compiled"),
            gauge(catalog.RECOMPILES, 2, "train.step", "shape"),
            gauge(catalog.RUNTIME_INFO, 1, "0.10.2", "0.10.2", "3.12", "cpu", ""),
            gauge(catalog.DEVICE_INFO, 1, "0", "cpu", "cpu", "0", "", ""),
            Family(
                catalog.LIVE_ARRAYS,
                [
                    (series(catalog.LIVE_ARRAYS, "0", "float32"), 9),
                    (series(catalog.LIVE_ARRAYS, "0", "int32"), 3),
                ],
            ),
        ]


@pytest.fixture
def agent(run_dir: Path) -> Iterator[Agent]:
    agent = Agent(run_dir)
    yield agent
    agent.server.stop()


@pytest.fixture
def other(run_dir: Path) -> Iterator[Agent]:
    agent = Agent(run_dir, 1)
    yield agent
    agent.server.stop()


def recompiling(function: str) -> dict[str, Any]:
    """Return the overview of a process with findings."""
    return {
        "schema": 1,
        "process": {"pid": 7, "observed_seconds": 100.0, "now": 1000.0},
        "functions": {
            function: {
                "calls": 100,
                "hits": 60,
                "misses": 40,
                "compiles": {"compiled": 40},
                "recompiles": {"shape": 39},
                "errors": {"trace_error": 3},
                "phases": {"backend_compile": {"seconds": 40.0, "count": 40}},
            }
        },
    }


def findings(chrome: Chrome) -> list[str]:
    """Return the visible text of each finding, in one line each."""
    found: list[str] = chrome.execute_script(
        "return [...document.querySelectorAll('#findings li')]"
        ".filter(one => one.checkVisibility())"
        ".map(one => one.innerText.replace(/\\s+/g, ' ').trim())"
    )
    return found


def open_page(chrome: Chrome, url: str, width: int = DESKTOP, **options: str) -> None:
    resize(chrome, width, scheme=options.get("scheme", "light"))
    chrome.get("about:blank")  # the page before may ask a server that is gone
    chrome.get_log("browser")
    chrome.get(url)
    until(lambda: text(chrome, "#state").startswith("live"), "the page to be live")


def text(chrome: Chrome, selector: str) -> str:
    return str(
        chrome.execute_script(
            "const found = document.querySelector(arguments[0]);"
            "return found?.checkVisibility() ? found.innerText : ''",
            selector,
        )
    )


def cells(chrome: Chrome, table: str) -> list[list[str]]:
    """Return the visible text of each cell of *table*, row by row."""
    rows: list[list[str]] = chrome.execute_script(
        "return [...document.querySelectorAll(arguments[0] + ' tbody tr')].map("
        "row => [...row.cells].map(cell => cell.innerText.trim()))",
        f"#{table}",
    )
    return rows


def test_figures_appear_and_update_without_a_reload(
    chrome: Chrome, exporter: Callable[..., Any], agent: Agent
) -> None:
    """What an agent says is on the page within seconds, and follows it."""
    open_page(chrome, exporter("--port", "0").url)
    until(lambda: cells(chrome, "functions"), "the function")
    (row,) = cells(chrome, "functions")
    assert row[0] == "train.step"
    assert row[2:5] == ["100", "90.0 %", "3"]
    assert row[5].split("\n") == ["2", "shape"]
    assert cells(chrome, "agents")[0][:4] == ["worker 0", "up", "2.0 h", "0.10.2 · cpu"]
    assert cells(chrome, "devices")[0][0].startswith("worker 0 · device 0")
    chrome.execute_script("window.same = true")
    agent.calls["train.step"] = 1_234_567
    until(lambda: cells(chrome, "functions")[0][2] == "1.2M", "the new count")
    assert cells(chrome, "functions")[0][1] not in ("\N{EN DASH}", "0.0")
    assert chrome.execute_script("return window.same") is True
    agent.calls["serve.generate"] = 5
    until(lambda: len(cells(chrome, "functions")) == 2, "the new function")
    assert console(chrome) == []


def test_process_that_dies_is_marked(
    chrome: Chrome, exporter: Callable[..., Any], agent: Agent
) -> None:
    """An agent whose socket is no longer served is shown as not responding."""
    open_page(chrome, exporter("--port", "0").url)
    until(lambda: cells(chrome, "agents"), "the agent")
    agent.server.stop()
    until(
        lambda: cells(chrome, "agents")[0][1] == "not responding", "the agent's state"
    )
    assert text(chrome, "#state") == "live · 0 processes"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_page_fits_its_width(
    chrome: Chrome,
    exporter: Callable[..., Any],
    agent: Agent,
    width: int,
    scheme: str,
) -> None:
    """Neither a phone nor a desktop scrolls sideways, whatever the names."""
    agent.calls[LONG] = agent.calls["x" * 120] = 7
    open_page(chrome, exporter("--port", "0", "--demo").url, width, scheme=scheme)
    until(lambda: len(cells(chrome, "functions")) == 8, "all functions")
    until(lambda: text(chrome, "#charts-title"), "the charts")
    until(lambda: cells(chrome, "collectors")[-1][1] == "working", "the collectors")
    until(lambda: findings(chrome), "that the agent has none")
    scroll, client, inner = chrome.execute_script(
        "const root = document.documentElement;"
        "return [root.scrollWidth, root.clientWidth, innerWidth]"
    )
    assert (scroll, inner) == (client, width)
    # Nor is anything cut off inside a card.
    clipped = chrome.execute_script(
        "return [...document.querySelectorAll('.card, dl > div, td, th')]"
        ".filter(node => node.scrollWidth > node.clientWidth + 1 && node.clientWidth)"
        ".filter(node => !node.closest('.uplot'))"
        ".map(node => node.innerText)"
    )
    assert clipped == []
    assert console(chrome) == []


def test_names_are_text_never_markup(
    chrome: Chrome, exporter: Callable[..., Any], agent: Agent
) -> None:
    """A function name full of markup is shown letter by letter and does nothing."""
    agent.calls = {HOSTILE: 3.0}
    open_page(chrome, exporter("--port", "0").url)
    until(lambda: cells(chrome, "functions"), "the function")
    names = [row[0] for row in cells(chrome, "functions")]
    assert HOSTILE in names
    assert chrome.execute_script("return document.querySelectorAll('img').length") == 0
    assert "owned" not in chrome.title


def test_findings_come_first_and_say_what_to_do(
    chrome: Chrome, exporter: Callable[..., Any], agent: Agent, run_dir: Path
) -> None:
    """
    The most urgent finding is first, with process, gain, advice and runbook; one that
    several processes have is there once, one without any says so, one that does not
    respond as well.
    """
    agent.overview = recompiling("train.step")
    second, third = Agent(run_dir, 1), Agent(run_dir, 2)
    second.overview = {**recompiling("train.step"), "errors": {}}
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

    assert failure.startswith("failure train.step failed 3 times: trace_error.")
    assert " Worker 0 (pid 7) · " in failure
    assert storm.startswith("time train.step was recompiled 39 times because")
    assert "Pad to a few fixed sizes" in storm
    assert "Workers 0, 1 · To win back: 39.0 s, 39.0 % of the time · Debug" in storm
    assert storm.endswith("Runbook JaxmonRecompileStorm")
    assert link == [
        "https://github.com/jaxmon/jaxmon/blob/main/runbooks/JaxmonRecompileStorm.md",
        "noreferrer",
    ]
    assert others[1:] == [
        "Worker 3 does not respond: its socket is a symbolic link.",
        "Worker 2: This jaxmon is older than that of the process: data may be wrong.",
        "Worker 2: Nothing to fix stands out.",
    ]
    assert re.fullmatch(r"read \d+ s ago", text(chrome, "#findings-age"))
    assert chrome.execute_script(CONTRAST) == []
    assert console(chrome) == []


def test_findings_of_hostile_agents_are_text(
    chrome: Chrome, exporter: Callable[..., Any], agent: Agent
) -> None:
    """
    Markup in a finding is shown letter by letter, on a phone as well, and no link leads
    anywhere but to a runbook.
    """
    agent.overview = recompiling(HOSTILE)
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


def test_findings_that_may_not_be_seen_have_a_reason(
    chrome: Chrome, exporter: Callable[..., Any], agent: Agent
) -> None:
    """In place of findings, the page says why there are none; the rest is there."""
    agent.overview = recompiling("train.step")
    open_page(chrome, exporter("--port", "0", "--findings", "off").url)
    until(lambda: findings(chrome), "the reason")
    assert findings(chrome) == ["Findings are disabled by --findings off."]
    assert cells(chrome, "functions")


def test_columns_sort_by_keyboard_and_pointer(
    chrome: Chrome, exporter: Callable[..., Any]
) -> None:
    """
    A heading sorts, a second click reverses, and assistive technology is informed.
    """
    open_page(chrome, exporter("--port", "0", "--demo").url)
    until(lambda: len(cells(chrome, "functions")) == 5, "the demo's functions")
    assert text(chrome, "#findings") == ""

    def press(name: str) -> str:
        return str(
            chrome.execute_script(
                "const heads = document.querySelectorAll('#functions th[scope=col]');"
                "const head = [...heads]"
                ".find(one => one.innerText.startsWith(arguments[0]));"
                "head.querySelector('button').click();"
                "return head.getAttribute('aria-sort')",
                name,
            )
        )

    assert press("Function") == "ascending"
    names = [row[0] for row in cells(chrome, "functions")]
    assert names == sorted(names)
    assert press("Function") == "descending"
    assert [row[0] for row in cells(chrome, "functions")] == names[::-1]
    assert press("Calls/s") == "descending"
    sorts = "return document.querySelectorAll('#functions [aria-sort]').length"
    assert chrome.execute_script(sorts) == 1


def test_unreachable_sidecar_is_visible_and_recovers(
    chrome: Chrome, exporter: Callable[..., Any]
) -> None:
    """When the sidecar stops the page says so, keeps its figures, and comes back."""
    port = str(free_port())
    running = exporter("--demo", "--port", port)
    open_page(chrome, running.url)
    until(lambda: cells(chrome, "functions"), "the functions")
    running.terminate()
    running.wait(90)
    until(lambda: text(chrome, "#state") == "unreachable", "the page to notice")
    assert text(chrome, "#lost").startswith("The sidecar is not responding.")
    assert "Data is from" in text(chrome, "#lost")
    assert len(cells(chrome, "functions")) == 5
    exporter("--demo", "--port", port)
    until(lambda: text(chrome, "#state") == "live · 4 processes", "the page to recover")
    assert text(chrome, "#lost") == ""


def test_newcomer_is_told_what_to_do(
    chrome: Chrome, exporter: Callable[..., Any], run_dir: Path
) -> None:
    """Without an agent the page shows how to instrument and where it looks."""
    open_page(chrome, exporter("--port", "0").url, PHONE)
    until(lambda: "jaxmon.instrument()" in text(chrome, "main"), "the advice")
    shown = text(chrome, "main")
    assert "jaxmon run train.py" in shown
    assert "Findings" not in shown
    assert str(run_dir) in shown
    assert "No accelerator." in shown
    assert console(chrome) == []


def test_what_a_host_cannot_have_is_no_failure(
    chrome: Chrome, exporter: Callable[..., Any], tmp_path: Path
) -> None:
    """A GPU too old to report its activity is a normal state, not a red one."""
    (tmp_path / "control").write_text("gpm 0 0\n")
    running = exporter(
        *("--port", "0"),
        LD_LIBRARY_PATH=str(build(tmp_path)),
        FAKE_NVML_GPUS="1",
        FAKE_NVML_CONTROL=str(tmp_path / "control"),
    )
    open_page(chrome, running.url)

    def states() -> dict[str, str]:
        return {
            row[0]: row[1].partition("\n")[0] for row in cells(chrome, "collectors")
        }

    until(lambda: states().get("nvml") == "working", "the GPU")
    until(lambda: states()["gpm"] == "not present", "its activity to be found absent")
    assert "Hopper" in text(chrome, "#collectors")


def test_tables_have_captions_and_headers(
    chrome: Chrome, exporter: Callable[..., Any]
) -> None:
    """Each table has a caption, scoped headers and, on a phone too, its role."""
    open_page(chrome, exporter("--port", "0", "--demo").url, PHONE)
    until(lambda: cells(chrome, "functions"), "the functions")
    found = chrome.execute_script(
        "return [...document.querySelectorAll('table')].map(table => ["
        "table.id, table.caption?.innerText.length > 9, table.role,"
        "table.querySelectorAll('tbody th[scope=row][role=rowheader]').length"
        " === table.tBodies[0].rows.length,"
        "table.querySelectorAll('thead th[scope=col][role=columnheader]').length > 1,"
        "table.closest('section').getAttribute('aria-labelledby')])"
    )
    names = [
        *("requests", "loops", "queues", "batches", "errors", "agents"),
        *("functions", "accelerators", "devices", "collectors"),
    ]
    assert found == [
        [name, True, "table", True, True, f"{name}-title"] for name in names
    ]


def answer(chrome: Chrome) -> tuple[str, str]:
    """Return the state and the sentence at the top of the page."""
    state = chrome.execute_script("return document.querySelector('#answer').className")
    return state, text(chrome, "#answer-text")


def test_planted_500s_are_the_first_thing_that_the_page_says(
    chrome: Chrome, exporter: Callable[..., Any], agent: Agent
) -> None:
    """
    160 failed requests are the answer at the top in words, in the title, in the tiles
    and in the table, on a phone as well; they are over when requests succeed again.
    """
    agent.respond(500)
    agent.started = time.time() - 30
    open_page(chrome, exporter("--port", "0").url, PHONE)
    until(lambda: answer(chrome)[0] == "fine", "the answer")
    assert answer(chrome)[1].endswith("requests a second, and none fails.")
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


def test_a_process_opens_alone(
    chrome: Chrome, exporter: Callable[..., Any], agent: Agent, other: Agent
) -> None:
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


def test_without_marks_the_page_says_what_to_mark(
    chrome: Chrome, exporter: Callable[..., Any], agent: Agent
) -> None:
    """Users may be anything then, so that the page is neither green nor red."""
    open_page(chrome, exporter("--port", "0").url)
    until(lambda: text(chrome, "#answer-advice"), "the advice")
    assert answer(chrome) == (
        "unknown",
        "Not known: no program here marks its requests or steps.",
    )
    assert "@jaxmon.request" in text(chrome, "#answer-advice")


def test_own_functions_of_jax_are_one_row_at_the_end(
    chrome: Chrome, exporter: Callable[..., Any], agent: Agent
) -> None:
    """However many JAX compiles for itself, the user's functions come first."""
    compiled = [f"jax._src.numpy.f{number}" for number in range(13)]
    metric = catalog.COMPILES
    agent.extra = [
        Family(metric, [(series(metric, name, "compiled"), 7.0) for name in compiled])
    ]
    agent.calls = dict.fromkeys((f"serve.f{number}" for number in range(40)), 5.0)
    open_page(chrome, exporter("--port", "0").url)
    until(lambda: cells(chrome, "functions"), "the functions")
    *users, last = cells(chrome, "functions")
    assert len(users) == 15
    assert all("jax._src" not in row[0] for row in users)
    assert last[0].split("\n") == ["JAX's own functions", "13 functions"]
    assert last[4] == "91"
    more = "return document.querySelector('#functions ~ .more')"
    assert chrome.execute_script(f"{more}.innerText") == "Show all 42"
    chrome.execute_script(f"{more}.click()")
    assert len(cells(chrome, "functions")) == 42


def test_charts_begin_with_history_and_say_what_they_show(
    chrome: Chrome, exporter: Callable[..., Any], agent: Agent
) -> None:
    """
    What was sampled before the page was opened is drawn, and in words for those who
    cannot see it; a chart without data is not there.
    """
    agent.respond(50)
    agent.started = time.time() - 5
    running = exporter("--port", "0")
    history = f"{running.url}api/history"
    until(lambda: len(json.loads(http_get(history))["times"]) > 1, "two samples")
    open_page(chrome, running.url)
    until(lambda: text(chrome, "#charts-title"), "the charts")
    labels = chrome.execute_script(
        "return [...document.querySelectorAll('.chart')].filter(one => !one.hidden)"
        ".map(one => one.querySelector('.plot').getAttribute('aria-label'))"
    )
    assert labels[0].startswith("Requests a second: now ")
    assert not any("Accelerators" in one or "Steps" in one for one in labels)
    drawn = "return document.querySelectorAll('.chart:not([hidden]) canvas').length"
    assert chrome.execute_script(drawn) == len(labels)
    assert console(chrome) == []


def test_nothing_moves_when_values_change(
    chrome: Chrome, exporter: Callable[..., Any], agent: Agent
) -> None:
    """A refresh changes texts only: nothing is laid out anew, and focus stays."""
    agent.respond(200)
    open_page(chrome, exporter("--port", "0").url)
    until(lambda: text(chrome, "#charts-title"), "the charts")
    until(lambda: findings(chrome), "that there are none")
    chrome.execute_script(
        "window.moved = 0; document.querySelector('#functions button').focus();"
        "new PerformanceObserver(list => { for (const one of list.getEntries())"
        " window.moved += one.value; }).observe({type: 'layout-shift'})"
    )
    agent.calls["train.step"] = 4321.0
    until(lambda: cells(chrome, "functions")[0][2] == "4,321", "the new value")
    assert chrome.execute_script("return window.moved") == 0
    focused = "return document.activeElement.textContent"
    assert chrome.execute_script(focused) == "Function"


@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_no_accessibility_fault(
    chrome: Chrome, exporter: Callable[..., Any], agent: Agent, width: int
) -> None:
    """axe-core finds none, whether users are all right or not."""
    require_axe()
    agent.overview = recompiling("train.step")
    agent.respond(160, "error")
    open_page(chrome, exporter("--port", "0").url, width)
    until(lambda: len(findings(chrome)) > 1, "the findings")
    until(lambda: text(chrome, "#charts-title"), "the charts")
    assert answer(chrome)[0] in ("failing", "degraded")
    assert accessibility_faults(chrome) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(
    chrome: Chrome, exporter: Callable[..., Any], scheme: str
) -> None:
    """All visible text has at least 4.5 to 1 against what is behind it."""
    open_page(chrome, exporter("--port", "0", "--demo").url, scheme=scheme)
    until(lambda: cells(chrome, "functions"), "the functions")
    assert chrome.execute_script(CONTRAST) == []


# Returns texts whose contrast with the nearest opaque background is too low.
CONTRAST = """
const channels = text => text.match(/[\\d.]+/g).map(Number);
const luminance = ([r, g, b]) => [r, g, b].map(v => (v /= 255) <= .03928
  ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
const behind = node => {
  for (; node; node = node.parentElement) {
    const colour = channels(getComputedStyle(node).backgroundColor);
    if (colour.length === 3 || colour[3] === 1) return colour;
  }
  return [255, 255, 255];
};
const low = [];
for (const node of document.querySelectorAll('body *')) {
  const own = [...node.childNodes].some(one => one.nodeType === 3 && one.data.trim());
  const unseen = !node.checkVisibility() || node.closest('script, style, select');
  if (!own || unseen) continue;
  const [a, b] = [channels(getComputedStyle(node).color), behind(node)].map(luminance);
  const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
  if (ratio < 4.5) low.push([node.innerText, ratio]);
}
return low;
"""
