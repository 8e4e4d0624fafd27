"""Warnings of JAX, counted by kind, the first of each function and kind in words."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

from jaxmon import catalog
from jaxmon.agent.context import Context
from jaxmon.agent.functions import Function
from jaxmon.agent.guard import Allowance
from jaxmon.agent.jaxlink import failures
from jaxmon.agent.jaxlink.frames import Jitted, program_at
from jaxmon.agent.jaxlink.hooks import HookPlaces, Hooks
from jaxmon.agent.jaxlink.patches import ModuleProxy
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder, stack_of
from jaxmon.agent.part import Explanation, Part
from jaxmon.exposition.families import Family, Tally, family_of
from jaxmon.host.sources import display_path


if TYPE_CHECKING:
    from jaxmon.facts.events import Warned


SITE = "warnings"

# Warnings in words, at most.
_SAID = 100

# Examining one takes some 100 µs: 0.1 % of a processor for each module of JAX.
_BURST, _PER_SECOND = 100, 10


class _Source:
    """A module of JAX that warns. *note* returns what counts warnings as it notes."""

    def __init__(self, note: Callable[[FrameType, int], tuple[Tally, ...]]) -> None:
        self.allowance = Allowance(burst=_BURST, rate=_PER_SECOND)
        self._note = note

    def on_warning(self, frame: FrameType, _: object) -> None:
        """Observe ``warnings.warn`` in this module."""
        if weight := self.allowance.take():
            self.allowance.latest = self._note(frame, weight)

    def settle(self) -> None:
        """Count those that passed since the latest as that."""
        latest, passed = self.allowance.latest, self.allowance.passed()
        for tally in latest or ():
            tally.add_many(passed)


class Warnings(Part):
    """
    Counts what JAX warns of. Changes neither filters nor handlers of the program.
    *on_callback* is called with message and frame if a callback fails.
    """

    name = SITE

    def __init__(
        self,
        context: Context,
        *,
        function_of: Callable[[Jitted], Function],
        on_callback: Callable[[str, FrameType], None],
    ) -> None:
        self._context = context
        self._guard = context.guard
        self._function_of = function_of
        self._on_callback = on_callback
        self._sites = SourceLineFinder(context.jax)
        self._counts = {kind: Tally() for kind in catalog.WARNING_KINDS}
        # By kind, function and line: the text of the first, and how many.
        self._seen: dict[tuple[str, str, str], tuple[str, Tally]] = {}
        self._sources: list[_Source] = []
        self._active = False

    def attach(self, hooks: Hooks) -> None:
        """Observe the modules of JAX that warn, and its loggers."""
        hooks.attach(SITE, self._take)

    def _take(self, at: HookPlaces) -> None:
        at.undo_by(self.detach)
        for module in failures.modules():
            original = vars(module)["warnings"]
            source = _Source(self._on_warning)
            self._sources.append(source)
            warn = at.stand_in(original.warn, source.on_warning, source.allowance)
            at.replace(module, "warnings", ModuleProxy(original, {"warn": warn}))
        self._active = True
        for logger in failures.loggers():
            logger.addFilter(self._on_record)

    def detach(self) -> None:
        """Leave JAX's loggers. Idempotent."""
        self._active = False
        for logger in failures.loggers():
            logger.removeFilter(self._on_record)

    stop = detach

    def _on_warning(self, frame: FrameType, weight: int) -> tuple[Tally, ...]:
        return self._note(failures.warned_at(frame), frame, weight)

    def _on_record(self, record: logging.LogRecord) -> bool:
        if self._active and record.levelno >= logging.WARNING and self._guard.on(SITE):
            try:
                # Above this: the logging package, then the function that logs.
                self._hear(failures.warned_by(record), sys._getframe(1))  # noqa: SLF001
            except Exception:  # noqa: BLE001 - contained: the record is logged
                self._guard.failed(SITE)
        return True

    def _hear(self, warned: failures.JaxWarning, frame: FrameType) -> None:
        self._note(warned, frame, 1)
        if warned.kind == "callback":
            self._on_callback(warned.text, frame)

    def _note(
        self, warned: failures.JaxWarning, frame: FrameType, weight: int
    ) -> tuple[Tally, ...]:
        """Note *weight* warnings like this one; return what counts them."""
        kind = self._counts[warned.kind]
        kind.add_many(weight)
        jitted = program_at(frame).jitted
        function = None if jitted is None else self._function_of(jitted)
        name = "" if function is None or function.internal else function.name
        site = self._sites.of(stack_of(frame))
        where = f"{display_path(site.file)}:{site.line}" if site.file else ""
        key = (warned.kind, name, where)
        if key not in self._seen:
            if len(self._seen) >= _SAID:
                return (kind,)
            self._seen[key] = warned.text, Tally()
            self._context.events.add(
                "warning", name or None, warned.text, warning=warned.kind, where=where
            )
        found = self._seen[key][1]
        found.add_many(weight)
        return kind, found

    def _settle(self) -> None:
        for source in self._sources:
            source.settle()

    def explain(self) -> Explanation:
        """Return the warnings by kind, function and line."""
        return Explanation({SITE: self.snapshot})

    def snapshot(self) -> tuple[Warned, ...]:
        """Return the warnings by kind, function and line."""
        from jaxmon.facts.events import Warned  # noqa: PLC0415 - on request

        self._settle()
        return tuple(
            Warned(*key, text, count.value)
            for key, (text, count) in self._seen.copy().items()
        )

    def collect(self) -> list[Family]:
        """Return the number of warnings of each kind."""
        self._settle()
        rows = [(kind, count.value) for kind, count in self._counts.items()]
        return [family_of(catalog.JAX_WARNINGS, rows)]
