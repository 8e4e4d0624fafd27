"""What tests do with a real browser."""

from __future__ import annotations

from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from selenium.webdriver import Chrome

PHONE, DESKTOP = 390, 1280


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
