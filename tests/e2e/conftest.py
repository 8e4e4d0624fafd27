"""A real browser for the end-to-end tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support import require_program


if TYPE_CHECKING:
    from selenium.webdriver import Chrome


@pytest.fixture(scope="module")
def chrome() -> Iterator[Chrome]:
    """Return a headless Chromium that keeps what is written to its console."""
    selenium = pytest.importorskip("selenium.webdriver")
    options = selenium.ChromeOptions()
    options.binary_location = require_program("chromium")
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = selenium.ChromeService(require_program("chromedriver"))
    browser = selenium.Chrome(options=options, service=service)
    yield browser
    browser.quit()
