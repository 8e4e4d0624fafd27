"""A real browser, and the landing page that tests serve and read in it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jaxmon import catalog
from jaxmon.exposition.families import Family, Histogram, gauge, histograms, series
from jaxmon.host.http.server import Response, Server, metrics_handler
from tests.helpers.processes import ROOT, require_program, until


if TYPE_CHECKING:
    from selenium.webdriver import Chrome


PHONE, TABLET, DESKTOP = 390, 768, 1280
_NO_BREAK = "\N{NO-BREAK SPACE}"
_AXE = ROOT / "tools/accessibility/node_modules/axe-core/axe.min.js"


@contextmanager
def chromium() -> Iterator[Chrome]:
    """Run a headless Chromium that keeps what is written to its console."""
    selenium = pytest.importorskip("selenium.webdriver")
    options = selenium.ChromeOptions()
    options.binary_location = require_program("chromium")
    for argument in (
        *("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"),
        # One renderer for all pages: starting it costs a third of opening one.
        "--disable-site-isolation-trials",
        "--disable-features=IsolateOrigins,site-per-process,SpareRendererForSitePerProcess",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = selenium.ChromeService(require_program("chromedriver"))
    browser = selenium.Chrome(options=options, service=service)
    try:
        yield browser
    finally:
        browser.quit()


def resize(
    chrome: Chrome,
    width: int,
    *,
    height: int = 900,
    scheme: str = "light",
    motion: str = "no-preference",
) -> None:
    """Let *chrome* have a window, or a phone's screen, and what its user prefers."""
    chrome.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {
            "width": width,
            "height": height,
            "deviceScaleFactor": 1,
            "mobile": width == PHONE,
        },
    )
    prefers = {"prefers-color-scheme": scheme, "prefers-reduced-motion": motion}
    features = [{"name": name, "value": value} for name, value in prefers.items()]
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def console(chrome: Chrome) -> list[str]:
    """Return what was written to the console since the last time."""
    return [entry["message"] for entry in chrome.get_log("browser")]


def require_axe() -> None:
    """Skip the test if axe-core is not installed."""
    if not _AXE.is_file():
        pytest.skip("needs axe-core: npm ci --prefix tools/accessibility")


def accessibility_faults(chrome: Chrome) -> list[Any]:
    """Return what axe-core finds on the page, and an element of each fault."""
    chrome.execute_script(_AXE.read_text())
    found: list[Any] = chrome.execute_async_script(
        "const done = arguments[0]; axe.run(document).then(result =>"
        " done(result.violations.map(one => [one.id, one.nodes[0].html])))"
    )
    return found


HOSTILE = '<img src=x onerror="document.title=\'owned\'">"\\'


LONG = "package.module.Class.method_with_a_very_long_name." * 4


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
            gauge(catalog.RUNTIME_INFO, 1, "", "0.10.2", "0.10.2", "3.12", "cpu", ""),
            gauge(catalog.DEVICE_INFO, 1, "0", "cpu", "cpu", "0", "", ""),
            Family(
                catalog.LIVE_ARRAYS,
                [
                    (series(catalog.LIVE_ARRAYS, "0", "float32"), 9),
                    (series(catalog.LIVE_ARRAYS, "0", "int32"), 3),
                ],
            ),
        ]


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
    """Return the visible text of the first such element; any space is a plain one."""
    found = chrome.execute_script(
        "const found = document.querySelector(arguments[0]);"
        "return found?.checkVisibility() ? found.innerText : ''",
        selector,
    )
    return str(found).replace(_NO_BREAK, " ")


def cells(chrome: Chrome, table: str) -> list[list[str]]:
    """Return the `text` of each cell of *table*, row by row."""
    rows: list[list[str]] = chrome.execute_script(
        "return [...document.querySelectorAll(arguments[0] + ' tbody tr')].map("
        "row => [...row.cells].map(cell => cell.innerText.trim()))",
        f"#{table}",
    )
    return [[cell.replace(_NO_BREAK, " ") for cell in row] for row in rows]


def answer(chrome: Chrome) -> tuple[str, str]:
    """Return the state and the sentence at the top of the page."""
    state = chrome.execute_script("return document.querySelector('#answer').className")
    return state, text(chrome, "#answer-text")


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


def focused(chrome: Chrome) -> list[tuple[str, bool]]:
    """
    Press Tab until the focus has been everywhere; return what it was on, and whether
    the outline is visible there: drawn, within the window's width, and not cut off.
    """
    found: list[tuple[str, bool]] = []
    chrome.execute_script("scrollTo(0, 0); document.activeElement.blur()")
    for _ in range(_MOST_STOPS):
        for kind in ("rawKeyDown", "keyUp"):
            key = {"type": kind, "key": "Tab", "windowsVirtualKeyCode": 9}
            chrome.execute_cdp_cmd("Input.dispatchKeyEvent", key)
        stop = chrome.execute_script(_FOCUSED)
        if stop is None or (found and stop == found[0]):
            break
        found.append(tuple(stop))
    return found


_MOST_STOPS = 100
# Returns what is focused, and whether its outline is visible; null if nothing is.
_FOCUSED = """
const node = document.activeElement;
if (!node || node === document.body) return null;
const style = getComputedStyle(node), box = node.getBoundingClientRect();
const room = parseFloat(style.outlineOffset) + parseFloat(style.outlineWidth) - 1;
const within = ({left, top, right, bottom}) => box.left - room >= left
  && box.top - room >= top && box.right + room <= right && box.bottom + room <= bottom;
let seen = node.checkVisibility({visibilityProperty: true})
  && style.outlineStyle === "solid" && parseFloat(style.outlineWidth) >= 2
  && box.width > 1 && box.height > 1 && within({left: 0, top: 0, right: innerWidth,
    bottom: innerHeight});
for (let outer = node.parentElement; outer !== document.body;) {
  const {overflow, clipPath} = getComputedStyle(outer);
  if (clipPath !== "none") seen = false;
  if (overflow === "hidden" && !within(outer.getBoundingClientRect())) seen = false;
  outer = outer.parentElement;
}
return [node.innerText?.trim().split("\\n")[0] || node.id || node.tagName, seen];
"""
