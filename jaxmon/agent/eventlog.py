"""
The agent's events as records of `logging`, and by OTLP if that is configured.

Handlers are the program's and may be slow, fail, or call JAX: they run on a thread of
ours, never where something happens. What is more than it can take is dropped.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from jaxmon import catalog
from jaxmon.agent.context import Context
from jaxmon.agent.events import LoggedEvent, logger
from jaxmon.agent.jaxlink.hooks import Hooks
from jaxmon.agent.part import Part
from jaxmon.agent.worker import Worker
from jaxmon.exposition.families import Family, family_of
from jaxmon.host import disclosure
from jaxmon.otel.environment import logs_are_asked


if TYPE_CHECKING:
    from jaxmon.otel.logs import OwnLogs

log = logging.getLogger("jaxmon")

_PREFIX = "jaxmon_"
_WAITING = 1000
# Of others, a warning.
_LEVELS: dict[str, int] = {
    **dict.fromkeys(("compile", "recompile", "miss", "transfer"), logging.INFO),
    **dict.fromkeys(("error", "oom"), logging.ERROR),
}
_LONGEST_DETAILS = 4000


class EventLogging(Part):
    """Gives each event to the program's handlers of `logging`."""

    name = "events"

    def __init__(self, context: Context) -> None:
        self._guard = context.guard
        self._events = context.events
        self._scheduler = context.scheduler
        self._waiting: deque[LoggedEvent] = deque()
        self._scheduled = False
        self._dropped = 0
        self._worker: Worker | None = None
        self._logs: OwnLogs | None = None
        self._outcomes = dict.fromkeys(catalog.EXPORT_OUTCOMES, 0)

    def attach(self, _: Hooks) -> None:
        """Begin to take events."""
        self._worker = Worker(self.name, self._scheduler)
        if logs_are_asked(os.environ):
            self._logs = self._own_logs()
        self._events.listener = self._take

    def collect(self) -> Iterable[Family]:
        """Return the number of exports by OTLP, if there are any."""
        if self._logs is None:
            return ()
        counts = [("logs", *outcome) for outcome in self._outcomes.copy().items()]
        return [family_of(catalog.OTLP_EXPORTS, counts)]

    def dropped(self) -> Mapping[str, int]:
        """Return the number of events that were not logged, or did not arrive."""
        return {"event": self._dropped}

    def flush(self, seconds: float) -> None:
        """Log what is waiting, and send it."""
        if (worker := self._worker) is not None:
            worker.drain(seconds)

    def stop(self) -> None:
        """Log what is waiting, and send it, within the deadline."""
        self._events.listener = None
        worker, self._worker = self._worker, None
        if worker is None:
            return
        worker.submit(self._write)
        worker.finish()
        self._dropped += len(self._waiting)
        self._waiting.clear()
        logs, self._logs = self._logs, None
        if logs is not None:
            logs.close()

    def abandon(self) -> None:
        """Leave thread and connection to the parent process."""
        self._events.listener = None
        self._worker = None
        _of_parent.append(self._logs)
        self._logs = None
        self._waiting = deque()

    def _take(self, event: LoggedEvent) -> None:
        """Never blocks: called where *event* happens."""
        worker = self._worker
        if worker is None or len(self._waiting) >= _WAITING:
            self._dropped += 1
            return
        self._waiting.append(event)
        if not self._scheduled:
            self._scheduled = True
            worker.submit(self._write)

    def _write(self) -> None:
        self._scheduled = False
        number = 0
        while self._waiting:
            try:
                event = self._waiting.popleft()
            except IndexError:
                break
            number += 1
            self._log(event)
        logs = self._logs
        if logs is None or not number:
            return
        arrived = logs.export()
        self._outcomes["success" if arrived else "failure"] += 1
        if not arrived:
            self._dropped += number

    def _log(self, event: LoggedEvent) -> None:
        level = _LEVELS.get(event.kind, logging.WARNING)
        record = logging.makeLogRecord(
            {
                "name": logger.name,
                "levelno": level,
                "levelname": logging.getLevelName(level),
                "msg": disclosure.document(event.message),
                "created": event.time,
                "msecs": event.time % 1 * 1000,
                **_attributes(event),
            }
        )
        with _span_of(event):
            if logger.isEnabledFor(level):
                logger.handle(record)
            if self._logs is not None:
                self._logs.emit(record)
            elif "opentelemetry.sdk._logs" in sys.modules:
                from jaxmon.otel import logs  # noqa: PLC0415 - few have a provider

                logs.emit_by_application(record)

    def _own_logs(self) -> OwnLogs | None:
        try:
            from jaxmon.otel import logs  # noqa: PLC0415 - few want it

            return logs.OwnLogs(os.environ)
        except ImportError as error:
            text = "jaxmon does not send its events by OTLP: %s; run `pip install %s`"
            log.warning(text, error, "'jaxmon[otel]'")
        except Exception:  # noqa: BLE001 - contained: events are logged all the same
            self._guard.failed(self.name, stays_on=True)
        return None


# See `jaxmon.otel.pusher`: a child must not even free them.
_of_parent: list[object] = []


def _attributes(event: LoggedEvent) -> dict[str, Any]:
    """Return the attributes of the record: texts and numbers only."""
    details = json.dumps(dict(event.details), separators=(",", ":"), default=repr)
    details = disclosure.document(details)
    about = {
        "kind": event.kind,
        "function": event.function or "",
        "number": event.number,
        "cause": str(event.details.get("cause") or ""),
        "details": details[:_LONGEST_DETAILS],
    }
    return {
        **{f"{_PREFIX}{name}": value for name, value in about.items()},
        "trace_id": event.trace_id,
        "span_id": event.span_id,
    }


def _span_of(event: LoggedEvent) -> contextlib.AbstractContextManager[None]:
    """Make the span of *event* current, for handlers that look for it."""
    with contextlib.suppress(ImportError):  # the API without the SDK
        if event.trace_id:
            from jaxmon.otel import logs  # noqa: PLC0415 - there are few spans

            return logs.within(event.trace_id, event.span_id)
    return contextlib.nullcontext()
