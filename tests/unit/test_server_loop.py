"""The event loop of a server inside somebody else's program."""

from __future__ import annotations

import asyncio
import selectors
import time
from typing import TYPE_CHECKING

from jaxmon.http.loop import new_loop


if TYPE_CHECKING:
    import pytest


def test_timers_go_by_a_clock_that_the_program_cannot_replace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With one that is no number, timeouts would be over before they began."""
    monkeypatch.setattr(time, "monotonic", lambda: float("nan"))
    loop = new_loop(selectors.DefaultSelector(), lambda *_: None)

    async def wait() -> list[str]:
        seen: list[str] = []
        later = loop.call_later(60, seen.append, "too early")
        loop.call_later(0.01, seen.append, "soon")
        await asyncio.sleep(0.05)
        later.cancel()
        return seen

    try:
        assert loop.run_until_complete(wait()) == ["soon"]
    finally:
        loop.close()
