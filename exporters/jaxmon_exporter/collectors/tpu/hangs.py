"""
Detects TPU cores that make no progress while programs are queued, and logs each once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from jaxmon_exporter.collecting import Clock
from jaxmon_exporter.collectors.tpu.messages import CoreState


log = logging.getLogger("jaxmon.exporter")

_STILL_SECONDS = 60.0
_MOST_TEXT = 300

Standing: TypeAlias = "tuple[str, int, str, CoreState]"
"""Uuid of a chip, core, runtime, state."""


@dataclass(slots=True)
class _Seen:
    state: CoreState
    since: float
    logged: bool = False


class HangDetector:
    """
    Remembers the position of each core, and since when.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[tuple[str, int], _Seen] = {}
        self._errors: dict[tuple[str, int], str] = {}

    def update(self, states: Iterable[Standing]) -> list[Standing]:
        """Record *states*; return those newly without progress."""
        now = self._clock()
        seen: dict[tuple[str, int], _Seen] = {}
        hung = []
        for uuid, core, runtime, state in states:
            before = self._seen.get((uuid, core))
            if before is None or _moved(before.state, state) or not state.queued:
                before = _Seen(state, now)
            elif not before.logged and now - before.since >= _STILL_SECONDS:
                before.logged = True
                hung.append((uuid, core, runtime, state))
            seen[uuid, core] = before
            self._report_error(uuid, core, state)
        self._seen = seen
        return hung

    def report(
        self, uuid: str, core: int, state: CoreState, location: str | None
    ) -> None:
        """Log that a core makes no progress, and its position."""
        log.warning(
            "core %d of %s has made no progress for a minute with %d programs "
            "queued: run %s of program %s, at %s",
            core,
            uuid,
            state.queued,
            state.run,
            state.program,
            _plain(location) if location else f"instruction {state.counter}",
        )

    def _report_error(self, uuid: str, core: int, state: CoreState) -> None:
        if state.error and self._errors.get((uuid, core)) != state.error:
            log.warning("core %d of %s: %s", core, uuid, _plain(state.error))
        self._errors[uuid, core] = state.error


def _moved(before: CoreState, now: CoreState) -> bool:
    return (before.program, before.run, before.counter) != (
        now.program,
        now.run,
        now.counter,
    )


def _plain(text: str) -> str:
    """Return *text* on one line, shortened."""
    line = "".join(one if one.isprintable() else " " for one in text)
    return line if len(line) <= _MOST_TEXT else f"{line[:_MOST_TEXT]}…"
