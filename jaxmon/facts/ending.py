"""
The end of a process: what it leaves in its slot (`jaxmon.facts.endings`), and what its
sidecar adds. Every screen and the post-mortem read this record, and nothing else says
how a process ended.

SIGTERM and SIGINT are how people and orchestrators stop programs: that is no crash.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from time import gmtime, strftime
from typing import Any, Literal, TypeAlias

from jaxmon.facts.record import Fact
from jaxmon.host.formats import json_text


SCHEMA = 1

State: TypeAlias = Literal["running", "finished", "crashed"]
RUNNING: State = "running"
FINISHED: State = "finished"
CRASHED: State = "crashed"
KILLED = "killed"
"""How a process ended that left no word of its end."""
STOPPED = "stopped"
"""How one ended that SIGTERM or SIGINT stopped, as far as that is known."""
IN_ORDER = (FINISHED, STOPPED)

# A word of a process that was killed before it had finished.
_SAID = {"exception": CRASHED, "exit": FINISHED, "finished": FINISHED}
# After a signal that a program handles itself, most exit with 128 and its number.
_BY_SIGNAL = 128
STOPS = {2: "SIGINT", 15: "SIGTERM"}
"""The signals that stop programs, by number."""
AGAIN = 600.0
"""An end without a record is a crash if another was so many seconds before."""
UNRECORDED = "ended without a record: killed, or stopped by a signal"
# More than any process counts, and what JSON readers keep exactly.
_MOST = 1 << 53


class Underlying(Fact):
    """Class of an exception, and the first line of its message."""

    type: str = ""
    message: str = ""

    def __str__(self) -> str:
        """Return both in a line."""
        return f"{self.type}: {self.message}" if self.message else self.type


class ProcessEnd(Fact):
    """
    What is known of a process of a slot.

    Attributes:
        starts: which process of its slot it is, counted from 1.
        crashes: how many of those before it crashed.
        state: ``running`` unless it said otherwise: also of one that was killed.
        running: the loop that runs; empty if none does.
        failures: how many of its program just before it crashed, in a row, or exited
            with another code than 0, each within ten minutes of the other.
        pid: in its own namespace of processes.
        program: its command line, as it may be shown.
        script: checksum of the path of its script, or of the name of its module.
        rank: its number in its job; `None` if it is in none.
        ranks: how many the job has.
        coordinator: address of the coordinator of the job.
        observed_seconds: for how long its agent had run.
        loop: the loop that it was in; empty if it marks none.
        steps: done in that loop.
        called: what it has called most of what the ranks call together.
        calls: how often.
        activity: the activity that it was in lately, if it marks any.
        place: the line where it was lately, as ``file:line``.
        awaited: the function whose program it waited for there, if it did.
        kind: ``exception``, ``exit`` with another code than 0, ``stop`` by a signal
            that it handled, or ``finished``; empty if it left no word.
        type: class of the exception.
        message: first line of its message, or of that of `sys.exit`.
        oom: whether it is about memory of devices.
        code: of `sys.exit`.
        where: ``file:line`` of the program that it ended at.
        function: in which function that is.
        causes: what the exception was raised from, or while handling.
        time: when this was written, by the wall clock.
        boottime: the same by the clock that all processes of a host share.
        age_seconds: how long ago that was; `None` if unknown. Never written.
        status: with which code it exited, by the kernel; `None` if that is unknown.
        signal: the number of the signal that ended it, by the kernel, or that it
            handled; 0 if none did.
        counted_since: when the counts of the slot began that this process left, or
            that it adds to; 0 if it does neither. By `jaxmon.clocks.monotonic`.
        counted_until: when it left them.
        counted_bytes: their size; 0 if it left none.
    """

    starts: int = 0
    crashes: int = 0
    state: State = RUNNING
    running: str = ""
    failures: int = 0
    pid: int = 0
    program: str = ""
    script: int = 0
    rank: int | None = None
    ranks: int | None = None
    coordinator: str = ""
    observed_seconds: float = 0.0
    loop: str = ""
    steps: int = 0
    called: str = ""
    calls: int = 0
    activity: str = ""
    place: str = ""
    awaited: str = ""
    kind: str = ""
    type: str = ""
    message: str = ""
    oom: bool = False
    code: int = 0
    where: str = ""
    function: str = ""
    causes: tuple[Underlying, ...] = ()
    time: float | None = None
    boottime: float | None = None
    age_seconds: float | None = None
    status: int | None = None
    signal: int = 0
    counted_since: float = 0.0
    counted_until: float = 0.0
    counted_bytes: int = 0

    @property
    def ended(self) -> str:
        """How it ended, if it has: in a word, such as ``finished``."""
        if self.stop:
            return STOPPED
        return self.state if self.state != RUNNING else _SAID.get(self.kind, KILLED)

    @property
    def failed(self) -> bool:
        """Whether it left the word that it failed."""
        return self.kind in {"exception", "exit"} and not self.stop

    @property
    def stop(self) -> str:
        """The name of the signal that stopped it, empty if that is not known."""
        if self.kind == "exception" or self.state == CRASHED:
            return ""
        if self.kind == "exit":
            number = self.code - _BY_SIGNAL
        else:
            number = self.signal or (self.status or 0) - _BY_SIGNAL
        return STOPS.get(number, "")

    def crashed(self, before: ProcessEnd | None) -> bool:
        """
        Return whether it crashed, if it has ended, after the process *before* it. What
        ended without a record may have been stopped: that counts only if it repeats.
        """
        if self.ended == STOPPED or self.state == FINISHED:
            return False
        if self.kind == "exception" or self.exited or self.state == CRASHED:
            return True
        if before is None or before.ended in IN_ORDER:
            return False
        return self._is_soon_after(before)

    def failures_with(self, before: ProcessEnd | None) -> int:
        """Return how many have failed in a row, up to this one, after *before*."""
        if self.ended in IN_ORDER and not self.failed:
            return 0
        near = before is not None and self._is_soon_after(before)
        return 1 + (self.failures if near else 0)

    def _is_soon_after(self, before: ProcessEnd) -> bool:
        return 0 <= (self.boottime or 0.0) - (before.boottime or 0.0) < AGAIN

    def crashes_with(self, before: ProcessEnd | None) -> int:
        """Return `crashes`, with *before* if it is known only now that it crashed."""
        if before is None or before.crashes != self.crashes:
            return self.crashes
        return self.crashes + (before.exited and before.crashed(None))

    @property
    def unrecorded(self) -> bool:
        """Whether it left no word, if it has ended, and the kernel's is not known."""
        return self.ended == KILLED and not self.exited

    @property
    def exited(self) -> bool:
        """Whether it is known how it exited, by the kernel."""
        return self.status is not None or bool(self.signal)

    @property
    def signal_name(self) -> str:
        """The name of the signal that ended it; empty if none did."""
        number = self.signal
        return _signal(number) or f"signal {number}" if number else ""

    def __str__(self) -> str:
        """Return how it ended, as the predicate of a sentence."""
        if self.stop:
            return f"was stopped by {self.stop}"
        if self.kind == "exception":
            return f"raised {Underlying(self.type, self.message)}{self._after(-1)}"
        if self.kind == "exit":
            by = _signal(self.code - _BY_SIGNAL)
            code = f"{self.code} ({by})" if by else str(self.code)
            message = f": {self.message}" if self.message else ""
            return f"exited with code {code}{message}{self._after(0)}"
        if FINISHED in (self.state, self.kind):
            return f"finished with code {self.status}" if self.status else "finished"
        return self._silent()

    def _silent(self) -> str:
        if self.state == CRASHED:
            return "ended by an uncaught exception"
        if self.signal:
            return f"was ended by {self.signal_name}"
        if self.status is not None:
            return f"exited with code {self.status} without a word"
        return UNRECORDED

    @property
    def sentence(self) -> str:
        """How and where it ended, and how far it had come, as a sentence."""
        return f"It {self._did()}{self._seen('')}."

    @property
    def process(self) -> str:
        """Which process it was."""
        who = f"pid {self.pid}" if self.pid else "A process"
        return f"{who} ({self.program})" if self.program else who

    def line(self, age: float | None) -> str:
        """Return the same with what is known of the process, and when, *age* ago."""
        from jaxmon.host.formats.layout import ago  # noqa: PLC0415 - agents load it seldom

        when = ""
        with suppress(ValueError, OverflowError, OSError):  # no such day
            if self.time is not None:
                when = strftime("at %Y-%m-%d %H:%M:%S UTC", gmtime(self.time))
        when = when if age is None else f"{ago(age)}{when and f' ({when[3:]})'}"
        if seen := self._seen(when):
            when = ""
        return f"{self.process} {self._did()}{seen}{when and f', {when}'}."

    def _did(self) -> str:
        found = [str(self)]
        if self.where and self.kind != "finished":
            found.append(f"at {self.where} in {self.function}")
        if self.loop:
            found.append(f"after step {self.steps:,} of {self.loop}")
        return f"{found[0]}{', ' if found[1:] else ''}{' '.join(found[1:])}"

    def _seen(self, when: str) -> str:
        """Return where one was last that left no word, and *when* that was."""
        if self.kind or self.state == FINISHED:
            return ""
        found = [
            *([f"alive {when}"] if when else []),
            *([f"in the activity {self.activity}"] if self.activity else []),
            *([f"at {self.place}"] if self.place else []),
            *([f"waiting for {self.awaited}"] if self.awaited else []),
        ]
        return f"; it was last seen {', '.join(found)}" if found else ""

    def _after(self, index: int) -> str:
        """Return one of its causes: the first one, or the last."""
        if not self.causes or not str(cause := self.causes[index]):
            return ""
        return f" (after {cause})" if cause.message or not index else ""

    def as_json(self) -> dict[str, Any]:
        """Return what is known, as JSON types, without what has its default."""
        values = self.__dict__.items()
        found = {
            key: value for key, value in values if value != getattr(ProcessEnd, key)
        }
        if self.causes:
            found["causes"] = [vars(cause) for cause in self.causes]
        return {"schema": SCHEMA, **found}


_OPTIONAL = {
    **dict.fromkeys(("rank", "ranks", "status"), int),
    **dict.fromkeys(("time", "boottime", "age_seconds"), float),
}


def _signal(number: int) -> str:
    import signal  # noqa: PLC0415 - few processes end so

    try:
        return signal.Signals(number).name
    except ValueError:
        return ""


def read(document: object) -> ProcessEnd:
    """
    Return the record that *document* is. What of it is implausible is as if it were not
    there: anyone may write anything in a run directory. Raises `NewerSchemaError`: it
    is of a later release; `ValueError`: it is no such record.
    """
    given = document if isinstance(document, Mapping) else {}
    json_text.require_schema(given, SCHEMA)
    found = {}
    for name in ProcessEnd.__annotations__.keys() & given.keys():
        kind = _OPTIONAL.get(name) or type(getattr(ProcessEnd, name))
        if (value := _plausible(kind, given[name])) is not None:
            found[name] = value
    record = ProcessEnd(**found)
    if record.starts < 1 or record.state not in (RUNNING, FINISHED, CRASHED):
        msg = "no record of a process"
        raise ValueError(msg)
    return record


def _plausible(kind: type, value: object) -> Any:
    if kind is tuple:
        items = value if isinstance(value, list) else ()
        return tuple(
            Underlying(_text(item.get("type")), _text(item.get("message")))
            for item in items
            if isinstance(item, Mapping)
        )
    if isinstance(value, str):
        return _text(value) if kind is str else None
    if isinstance(value, bool):
        return value if kind is bool else None
    if not isinstance(value, (int, float)) or not 0 <= value < _MOST:
        return None
    if kind is float:
        return float(value)
    return value if kind is type(value) else None


def _text(value: object) -> str:
    return value.encode(errors="replace").decode() if isinstance(value, str) else ""
