"""Errors that left a jitted call, or a wait for the device: each is counted once."""

from __future__ import annotations

import contextlib
import functools
import time
from collections import deque
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, TypeAlias
from weakref import ReferenceType, ref

from jaxmon import catalog, interrupts
from jaxmon.agent.context import Context
from jaxmon.agent.functions import UNKNOWN, Function
from jaxmon.agent.jaxlink import failures
from jaxmon.agent.jaxlink.failures import Stage
from jaxmon.agent.oom.facts import Failure
from jaxmon.agent.oom.part import OomReports
from jaxmon.agent.source_lines import Frame, Sites, shown
from jaxmon.exposition.families import Family, gauge


ErrorObserver: TypeAlias = Callable[[Function, str, BaseException], None]

# Errors that may still be on their way up, on all threads together.
_REMEMBERED = 64
_MAX_FRAMES = 200
_MAX_TEXT = 16 * 1024


class Errors:
    """
    Classifies and counts errors. Called on the thread that has the error.

    Attributes:
        observers: told of each error once, with the function that it left and its
            kind; they must not keep it.
        reports: writes a report when memory ran out.
    """

    def __init__(self, context: Context) -> None:
        self.observers: list[ErrorObserver] = []
        self.reports = OomReports(context)
        self._context = context
        self._guard = context.guard
        self._sites = Sites(context.jax)
        # An error cannot be kept: its traceback holds the program's arrays. Builtin
        # classes allow no weak references, and an id is used again. But nobody else
        # has its tuple of arguments, as long as we hold that.
        self._seen: deque[tuple[object, ...]] = deque(maxlen=_REMEMBERED)
        self._seen_weakly: dict[int, ReferenceType[BaseException]] = {}

    def left_call(
        self, function: Function, error: BaseException, above: FrameType | None = None
    ) -> None:
        """
        Take *error*, which leaves a call of *function*.

        Args:
            function: whose call it was.
            error: what left it.
            above: the frame that made the call.
        """
        if not self._is_known(error):
            self._remember(error)
            stage = failures.stage_of(error)
            self._take(function, error, stage, self._place(error, above))

    def uncaught(
        self,
        error: BaseException | None,
        *,
        stage: Stage | None = None,
        frame: FrameType | None = None,
    ) -> None:
        """
        Take what left a thread, a request, an activity or a wait: the errors of JAX in
        it that were not counted on their way there.

        A cached call that fails, or a device error found by whoever waits for the
        result, never passes the miss path; the function is then unknown, unless the
        message names it.

        Args:
            error: anything; what is not JAX's is left alone.
            stage: what was being done, if known better than the traceback tells.
            frame: where, for an error without a traceback yet.
        """
        if error is None:
            return
        for one in failures.from_jax_within(error, self._is_known):
            self._remember(one)
            where = self._place(one, frame)
            self._take(self._named_in(one), one, stage or failures.stage_of(one), where)

    def start(self) -> None:
        """Prepare for reports; errors come by themselves."""
        self.reports.start()

    def stop(self) -> None:
        """Write no more reports."""
        self.reports.stop()
        self._seen.clear()
        self._seen_weakly.clear()

    def snapshot(self) -> dict[str, Any]:
        """Return where the reports of this process are, oldest first."""
        return {"oom_reports": self.reports.paths()}

    def collect(self) -> list[Family]:
        """Return how many reports there were; errors are figures of the functions."""
        return [gauge(catalog.OOM_REPORTS, self.reports.count)]

    # --- inside ------------------------------------------------------------------

    def _take(
        self,
        function: Function,
        error: BaseException,
        stage: Stage | None,
        where: str | None,
    ) -> None:
        kind = failures.kind_of(error)
        function.count_error(kind)
        with self._contained():
            self._note(function, error, kind, stage, where)
        for tell in list(self.observers):
            with self._contained():
                tell(function, kind, error)

    @contextlib.contextmanager
    def _contained(self) -> Iterator[None]:
        """Keep what goes wrong inside from what comes after."""
        try:
            yield
        except MemoryError as error:  # there is none: not a failure of ours
            interrupts.pass_on(error)
        except Exception:  # noqa: BLE001 - contained and counted
            self._guard.failed("errors_told", stays_on=True)

    def _note(
        self,
        function: Function,
        error: BaseException,
        kind: str,
        stage: Stage | None,
        where: str | None,
    ) -> None:
        name = type(error).__name__
        # The user's own exceptions may say anything at all.
        quoted = self._context.settings.event_values or failures.is_from_jax(error)
        message = failures.message_of(error) if quoted else ""
        self._context.events.add(
            "error",
            function.name,
            f"{name}: {message}" if message else name,
            error_kind=kind,
            type=name,
            stage=stage,
            where=where,
        )
        if kind == "oom":
            text = failures.message_of(error, limit=_MAX_TEXT, lines=None)
            self.reports.write(
                Failure(
                    function=function.name,
                    kind=kind,
                    type=name,
                    message=message,
                    text=text if quoted else "",
                    stage=stage,
                    where=where,
                    time=time.time(),
                )
            )

    def _is_known(self, error: BaseException) -> bool:
        """Tell whether *error* was counted."""
        known = self._seen_weakly.get(id(error))
        if known is not None and known() is error:
            return True
        args = error.args
        return any(args is one for one in list(self._seen))

    def _remember(self, error: BaseException) -> None:
        key, args = id(error), error.args
        try:
            # The callback is C and runs before the id can be used again.
            forget = functools.partial(self._seen_weakly.pop, key)
            self._seen_weakly[key] = ref(error, forget)
        except TypeError as failed:
            interrupts.pass_on(failed)
            # Anything else may be large, and would be kept; `()` is everybody's.
            if args and all(isinstance(one, str | int) for one in args):
                self._seen.append(args)

    def _place(self, error: BaseException, above: FrameType | None) -> str | None:
        where: str | None = None
        with self._contained():
            where = self._where(error, above)
        return where  # noqa: RET504 - the block may end early

    def _where(self, error: BaseException, above: FrameType | None) -> str | None:
        """Return the innermost line of the user's that *error* passed, or came from."""
        inner: list[Frame] = []
        traceback = error.__traceback__
        while traceback is not None:
            code = traceback.tb_frame.f_code
            inner.append(Frame(code.co_filename, traceback.tb_lineno, code.co_name))
            traceback = traceback.tb_next
        frames = inner[::-1][:_MAX_FRAMES]
        while above is not None and len(frames) < _MAX_FRAMES:
            code = above.f_code
            frames.append(Frame(code.co_filename, above.f_lineno or 0, code.co_name))
            above = above.f_back
        site = self._sites.of(frames)
        return f"{shown(site.file)}:{site.line}" if site.file else None

    def _named_in(self, error: BaseException) -> Function:
        """
        Return the only function with the name that the text mentions, else unknown.
        """
        name = failures.named_in(error)
        found = [
            function
            for function in self._context.table
            if name is not None and function.name.rpartition(".")[2] == name
        ]
        return found[0] if len(found) == 1 else self._context.table.named(UNKNOWN)
