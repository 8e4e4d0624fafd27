"""What tests do with a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import ROOT, require_program


if TYPE_CHECKING:
    from selenium.webdriver import Chrome

PHONE, DESKTOP = 390, 1280
_AXE = ROOT / "tools/accessibility/node_modules/axe-core/axe.min.js"


@contextmanager
def chromium() -> Iterator[Chrome]:
    """Run a headless Chromium that keeps what is written to its console."""
    selenium = pytest.importorskip("selenium.webdriver")
    options = selenium.ChromeOptions()
    options.binary_location = require_program("chromium")
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = selenium.ChromeService(require_program("chromedriver"))
    browser = selenium.Chrome(options=options, service=service)
    try:
        yield browser
    finally:
        browser.quit()


def resize(
    chrome: Chrome, width: int, *, height: int = 900, scheme: str = "light"
) -> None:
    """Let *chrome* have a window, or a phone's screen, in a colour scheme."""
    chrome.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {
            "width": width,
            "height": height,
            "deviceScaleFactor": 1,
            "mobile": width == PHONE,
        },
    )
    chrome.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
    )


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
