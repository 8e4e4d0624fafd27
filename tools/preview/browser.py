"""A headless Chromium that draws boards and takes pictures of them."""

from __future__ import annotations

import base64
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode


if TYPE_CHECKING:
    from selenium.webdriver import Chrome


_PATIENCE_SECONDS = 300.0
# Chromium draws no picture that is higher.
_HIGHEST_PIXELS = 16000


class BrowserError(Exception):
    """Chromium is missing, or the page failed."""


@dataclass(frozen=True)
class View:
    """What is chosen on a board, as in the address of the page."""

    board: str
    width: int = 1440
    theme: str = "dark"
    first: str = ""
    last: str = ""
    scrape: str = "15s"
    expand: bool = False
    variables: dict[str, list[str]] = field(default_factory=dict)

    def query(self) -> str:
        """Return the query string of the page's address."""
        pairs = [("board", self.board), ("theme", self.theme), ("scrape", self.scrape)]
        if self.first:
            pairs += [("from", self.first), ("to", self.last or "now")]
        if self.expand:
            pairs.append(("expand", "all"))
        for name, values in self.variables.items():
            pairs += [(f"var-{name}", value) for value in values]
        return urlencode(pairs)


@contextmanager
def chromium() -> Iterator[Chrome]:
    """
    Yield a headless Chromium.

    Raises:
        BrowserError: Chromium or its driver is not installed.
    """
    from selenium import webdriver  # noqa: PLC0415 - takes a third of a second

    programs = [shutil.which("chromium"), shutil.which("chromedriver")]
    if None in programs:
        msg = "chromium and chromedriver are needed; `make packages` installs them"
        raise BrowserError(msg)
    options = webdriver.ChromeOptions()
    options.binary_location = str(programs[0])
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    service = webdriver.ChromeService(str(programs[1]))
    browser = webdriver.Chrome(options=options, service=service)
    try:
        yield browser
    finally:
        browser.quit()


def draw(browser: Chrome, address: str, view: View) -> dict[str, Any]:
    """
    Draw a board; return what the page reports about it, see ``page/report.js``.

    Raises:
        BrowserError: the page failed or does not finish.
    """
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": view.width, "height": 1000, "deviceScaleFactor": 1, "mobile": False},
    )
    browser.get(f"{address}?{view.query()}")
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        found = browser.execute_script(
            "return window.preview && JSON.stringify(preview)"
        )
        if found:
            report: dict[str, Any] = json.loads(found)
            if "error" not in report:
                return report
            msg = f"{view.board}: {report['error']}"
            raise BrowserError(msg)
        time.sleep(0.1)
    msg = f"{view.board}: the page did not finish in {_PATIENCE_SECONDS:.0f} s"
    raise BrowserError(msg)


def picture(browser: Chrome, path: Path, view: View) -> None:
    """Write the whole board as a PNG."""
    height = browser.execute_script("return document.documentElement.scrollHeight")
    clip = {
        "x": 0,
        "y": 0,
        "width": view.width,
        "height": min(height, _HIGHEST_PIXELS),
        "scale": 1,
    }
    shot = browser.execute_cdp_cmd(
        "Page.captureScreenshot",
        {"format": "png", "captureBeyondViewport": True, "clip": clip},
    )
    path.write_bytes(base64.b64decode(shot["data"]))
