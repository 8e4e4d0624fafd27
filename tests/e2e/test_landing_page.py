"""The landing page in a real browser: content, updates, phones, hostile names."""

import re

import pytest

from jaxmon import catalog
from jaxmon.exposition.families import Family, series
from jaxmon.host.formats.layout import UNITS
from tests.fakes.nvml.build import build
from tests.helpers.browser import (
    CONTRAST,
    DESKTOP,
    HOSTILE,
    LONG,
    PHONE,
    TABLET,
    accessibility_faults,
    answer,
    cells,
    console,
    findings,
    focused,
    open_page,
    require_axe,
    resize,
    text,
)
from tests.helpers.findings import recompiling
from tests.helpers.processes import free_port, some, until


def test_figures_appear_and_update_without_a_reload(chrome, exporter, agent):
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


def test_process_that_dies_is_marked(chrome, exporter, agent):
    """An agent whose socket is no longer served is shown as not responding."""
    open_page(chrome, exporter("--port", "0").url)
    until(lambda: cells(chrome, "agents"), "the agent")
    agent.server.stop()
    until(
        lambda: cells(chrome, "agents")[0][1] == "not responding", "the agent's state"
    )
    assert text(chrome, "#state") == "live · 0 processes"


@pytest.mark.parametrize("width", some([TABLET, PHONE, DESKTOP]))
def test_page_fits_its_width(chrome, exporter, agent, width):
    """Neither a phone nor a desktop scrolls sideways, whatever the names."""
    agent.calls[LONG] = agent.calls["x" * 120] = 7
    open_page(chrome, exporter("--port", "0", "--demo").url, width)
    until(lambda: len(cells(chrome, "functions")) == 8, "all functions")
    until(lambda: text(chrome, "#charts-title"), "the charts")
    until(lambda: cells(chrome, "collectors")[-1][1] == "working", "the collectors")
    until(lambda: findings(chrome), "that the agent has none")
    for scheme in ("light", "dark"):
        resize(chrome, width, scheme=scheme)
        scroll, client, inner = chrome.execute_script(
            "const root = document.documentElement;"
            "return [root.scrollWidth, root.clientWidth, innerWidth]"
        )
        assert (scroll, inner) == (client, width), scheme
        # Nor is anything cut off inside a card.
        clipped = chrome.execute_script(
            "return [...document.querySelectorAll('.card, dl > div, td, th')]"
            ".filter(node => node.scrollWidth > node.clientWidth + 1)"
            ".filter(node => node.clientWidth && !node.closest('.uplot'))"
            ".map(node => node.innerText)"
        )
        assert clipped == [], scheme
    assert console(chrome) == []


def test_names_are_text_never_markup(chrome, exporter, agent):
    """A function name full of markup is shown letter by letter and does nothing."""
    agent.calls = {HOSTILE: 3.0}
    open_page(chrome, exporter("--port", "0").url)
    until(lambda: cells(chrome, "functions"), "the function")
    names = [row[0] for row in cells(chrome, "functions")]
    assert HOSTILE in names
    assert chrome.execute_script("return document.querySelectorAll('img').length") == 0
    assert "owned" not in chrome.title


def test_columns_sort_by_keyboard_and_pointer(chrome, exporter):
    """A heading sorts, a second click reverses; assistive technology is informed."""
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


def test_unreachable_sidecar_is_visible_and_recovers(chrome, exporter):
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


def test_newcomer_is_told_what_to_do(chrome, exporter, run_dir):
    """Without an agent the page shows how to instrument and where it looks."""
    open_page(chrome, exporter("--port", "0").url, PHONE)
    until(lambda: "jaxmon.instrument()" in text(chrome, "main"), "the advice")
    shown = text(chrome, "main")
    assert "jaxmon run train.py" in shown
    assert "Findings" not in shown
    assert str(run_dir) in shown
    assert "No accelerator." in shown
    assert console(chrome) == []


def test_what_a_host_cannot_have_is_no_failure(chrome, exporter, tmp_path):
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


def test_tables_have_captions_and_headers(chrome, exporter):
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


def test_own_functions_of_jax_are_one_row_at_the_end(chrome, exporter, agent):
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


@pytest.mark.exhaustive
def test_nothing_moves_when_values_change(chrome, exporter, agent):
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


@pytest.mark.parametrize(
    "width", [PHONE, pytest.param(DESKTOP, marks=pytest.mark.exhaustive)]
)
def test_no_accessibility_fault(chrome, exporter, agent, width):
    """axe-core finds none, whether users are all right or not."""
    require_axe()
    agent.overview = recompiling("train.step", errors={"trace_error": 3})
    agent.respond(160, "error")
    open_page(chrome, exporter("--port", "0").url, width)
    until(lambda: len(findings(chrome)) > 1, "the findings")
    until(lambda: text(chrome, "#charts-title"), "the charts")
    assert answer(chrome)[0] in ("failing", "degraded")
    assert accessibility_faults(chrome) == []


@pytest.mark.parametrize(
    "scheme", [pytest.param("light", marks=pytest.mark.exhaustive), "dark"]
)
def test_text_has_contrast(chrome, exporter, scheme):
    """All visible text has at least 4.5 to 1 against what is behind it."""
    open_page(chrome, exporter("--port", "0", "--demo").url, scheme=scheme)
    until(lambda: cells(chrome, "functions"), "the functions")
    assert chrome.execute_script(CONTRAST) == []


def test_numbers_stay_with_their_units(chrome, exporter, agent):
    """On a phone, too, no line breaks between them, in values and in sentences."""
    agent.overview = recompiling("train.step", errors={"trace_error": 3})
    agent.respond(160, "error")
    open_page(chrome, exporter("--port", "0").url, PHONE)
    until(lambda: len(findings(chrome)) > 1, "the findings")
    shown = chrome.execute_script(
        "return document.body.innerText + [...document.querySelectorAll("
        "'[data-label]')].map(one => one.dataset.label)"
    )
    assert [found[0] for found in re.finditer(rf"{UNITS}.*", shown)] == []
    assert "\N{NO-BREAK SPACE}%" in shown


@pytest.mark.parametrize(
    "width", [PHONE, pytest.param(DESKTOP, marks=pytest.mark.exhaustive)]
)
def test_the_keyboard_reaches_everything_in_order(chrome, exporter, agent, width):
    """From the top to the bottom, once, with a visible outline each time."""
    agent.overview = recompiling("train.step")
    for number in range(40):
        agent.calls[f"serve.f{number}"] = 5.0
    open_page(chrome, exporter("--port", "0").url, width)
    until(lambda: findings(chrome), "the findings")
    until(lambda: cells(chrome, "functions"), "the functions")
    stops = focused(chrome)
    names = [name for name, _ in stops]

    assert [name for name, seen in stops if not seen] == []
    assert "Runbook JaxmonRecompileStorm" in names
    assert "pid 7" in names
    assert ("Hit rate" in names) == (width == DESKTOP)
    assert names[-4:] == [
        *("Show all 41", "Metrics", "Summary as JSON", "History as JSON")
    ]


def test_nothing_moves_for_those_who_prefer_that(chrome, exporter):
    """Without the preference, what is out of date fades; with it, at once."""
    url = exporter("--port", "0").url
    moving = (
        "return [...document.querySelectorAll('*')].filter(one => { const style ="
        " getComputedStyle(one); return parseFloat(style.transitionDuration) > 0 ||"
        " parseFloat(style.animationDuration) > 0; }).length"
    )
    open_page(chrome, url)
    assert chrome.execute_script(moving) > 0
    resize(chrome, DESKTOP, motion="reduce")
    assert chrome.execute_script(moving) == 0
