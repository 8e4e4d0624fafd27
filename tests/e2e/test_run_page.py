"""The report of a run in a real browser, opened from a file, without a network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jaxmon.screens.html.page import files_of
from tests.helpers.browser import (
    CONTRAST,
    DESKTOP,
    PHONE,
    TABLET,
    accessibility_faults,
    console,
    focused,
    require_axe,
    resize,
)
from tests.unit.test_run_reports import INJECTION, full


if TYPE_CHECKING:
    from selenium.webdriver import Chrome


LONG = "package.module.Class.method_with_a_very_long_name." * 4


@pytest.fixture(autouse=True)
def online_again(chrome: Chrome) -> Iterator[None]:
    """Give the browser, which other files use, its network back."""
    yield
    chrome.execute_cdp_cmd("Network.disable", {})


def open_report(
    chrome: Chrome, directory: Path, name: str, width: int = DESKTOP, **options: str
) -> Path:
    """Open a report on functions called *name*; return its file."""
    path = directory / "report.html"
    path.write_text(files_of(full(name)).page, encoding="utf-8")
    resize(chrome, width, scheme=options.get("scheme", "light"))
    chrome.execute_cdp_cmd("Network.enable", {})
    chrome.execute_cdp_cmd(
        "Network.emulateNetworkConditions",
        {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0},
    )
    chrome.get("about:blank")
    console(chrome)
    chrome.get(path.as_uri())
    return path


@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [
        ("train.step", DESKTOP, "light"),
        pytest.param("train.step", PHONE, "dark", marks=pytest.mark.exhaustive),
        (INJECTION, PHONE, "light"),
        (LONG, PHONE, "dark"),
        (LONG, TABLET, "light"),
        pytest.param(LONG, DESKTOP, "dark", marks=pytest.mark.exhaustive),
    ],
    ids=["desktop", "phone", "markup", "long on a phone", "long on a tablet", "long"],
)
def test_it_opens_from_a_file_without_a_network(chrome, tmp_path, name, width, scheme):
    """Its style applies, it loads nothing, no name does anything or sticks out."""
    open_report(chrome, tmp_path, name, width, scheme=scheme)
    found = chrome.execute_script(
        "return {"
        "width: document.documentElement.scrollWidth,"
        "loaded: performance.getEntriesByType('resource').map(one => one.name),"
        "background: getComputedStyle(document.body).backgroundColor,"
        "charts: [...document.querySelectorAll('.chart svg')]"
        "  .filter(one => one.getBoundingClientRect().width > 100).length,"
        "bar: [...document.querySelectorAll('.parts rect')]"
        "  .map(one => one.getBoundingClientRect().width),"
        "scripts: document.scripts.length,"
        "text: document.body.innerText"
        "}"
    )

    assert console(chrome) == []
    assert [one for one in found["loaded"] if not one.startswith("data:")] == []
    assert found["width"] <= width
    assert found["background"] == (
        "rgb(246, 247, 246)" if scheme == "light" else "rgb(17, 23, 21)"
    )
    assert found["charts"] == 6
    assert len(found["bar"]) == 2
    assert min(found["bar"]) > 50
    assert found["scripts"] == 0
    assert name in " ".join(found["text"].split())


def test_it_prints(chrome: Chrome, tmp_path: Path) -> None:
    """On white paper, whatever the scheme, and on few pages."""
    open_report(chrome, tmp_path, "train.step", scheme="dark")
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    background = chrome.execute_script(
        "return getComputedStyle(document.body).backgroundColor"
    )
    printed = chrome.execute_cdp_cmd("Page.printToPDF", {"printBackground": False})

    assert background == "rgb(255, 255, 255)"
    assert len(printed["data"]) > 10_000


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        pytest.param(DESKTOP, "dark", id="dark", marks=pytest.mark.exhaustive),
        pytest.param(PHONE, "light", id="phone"),
    ],
)
def test_no_accessibility_fault(chrome, tmp_path, width, scheme):
    """axe-core finds none."""
    require_axe()
    open_report(chrome, tmp_path, "train.step", width, scheme=scheme)

    assert accessibility_faults(chrome) == []
    assert chrome.execute_script(CONTRAST) == []
    stops = focused(chrome)
    assert len(stops) > 1
    assert [name for name, seen in stops if not seen] == []


@pytest.mark.parametrize("width", [PHONE, TABLET, DESKTOP])
def test_numbers_fill_their_rows(chrome, tmp_path, width):
    """As many as there are: no hole is left, whatever the width."""
    open_report(chrome, tmp_path, "train.step", width)
    holes = (
        "const all = document.querySelector('dl').getBoundingClientRect(), rows = {};"
        "for (const one of document.querySelectorAll('dl > div')) {"
        " const box = one.getBoundingClientRect();"
        " rows[box.top] = Math.max(rows[box.top] || 0, box.right); }"
        "return Object.values(rows).filter(right => right < all.right - 2)"
    )
    assert chrome.execute_script(holes) == []
    assert chrome.execute_script("return document.querySelector('dl > div') !== null")
