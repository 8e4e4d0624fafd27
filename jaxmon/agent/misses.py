"""
The miss path: calls that left the C++ fast path, and errors that left a call.

A cached call of a jitted function never reaches Python. A miss does, through
functions of JAX that are looked up in their module at each call, so a `Probe` there
sees every jitted function, also those made before `jaxmon.instrument`.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any
from weakref import WeakSet

from jaxmon.agent import failures
from jaxmon.agent.calls import CallLayer
from jaxmon.agent.functions import UNKNOWN, Function, FunctionTable
from jaxmon.agent.payers import Payers
from jaxmon.agent.probe import Ending
from jaxmon.agent.stack import CALL, Jitted, jitted_at


class _Thread(threading.local):
    def __init__(self) -> None:
        # Nested calls of the program (callbacks, constants computed while tracing)
        # are few; the bound only keeps ids of frames long gone from piling up.
        self.calls: deque[int] = deque(maxlen=32)


class Misses:
    """
    Observers of the miss path.

    Args:
        table: where the figures go.
        calls: tells which functions the call layer counts.
        payers: whom compiles are charged to.
        clean: JAX's ``trace_state_clean``: whether the program itself is calling,
            and not JAX while it traces another function.
    """

    def __init__(
        self,
        table: FunctionTable,
        calls: CallLayer,
        payers: Payers,
        clean: Callable[[], bool],
    ) -> None:
        self._table = table
        self._calls = calls
        self.payers = payers
        self._clean = clean
        self._counted_errors: WeakSet[BaseException] = WeakSet()
        self._thread = _Thread()

    def function_of(self, jitted: Jitted) -> Function:
        """
        Return the entry of *jitted*.
        """
        return self._calls.entry(jitted.key) or self._table.of(jitted.fun)

    def is_call(self, entry: int | None) -> bool:
        """
        Tell whether the ``cache_miss`` frame with this id, running on this thread,
        serves a call of the program, and not one that JAX traces or transforms.
        """
        return entry in self._thread.calls

    def on_miss(
        self, frame: FrameType, original: Callable[..., Any]
    ) -> Callable[..., Any] | None:
        """
        Observe ``pjit._infer_params`` or ``api._prepare_pmap``.

        Both are asked on every miss, effects that miss every time included, and
        also ahead of time, which is not a call.
        """
        if frame.f_code.co_name not in CALL:
            return None
        jitted = jitted_at(frame)
        if jitted is None:
            return None
        entered = self._calls.entry(jitted.key)
        calls = self._thread.calls
        entry = id(frame if frame.f_code.co_name == "cache_miss" else frame.f_back)
        if not self._clean():
            if entry in calls:  # a frame that is gone had this id
                calls.remove(entry)
            if entered:
                entered.traced.add()
            return None
        if entry not in calls:
            calls.append(entry)
        function = entered or self._table.of(jitted.fun)
        function.missed.add()
        if entered:
            entered.entered_missed.add()
        # The original traces the function, unless that was done before.
        paid = self.payers.tracing_begins()
        if paid is None:
            return None
        tracing = Ending(original)
        tracing.on_end = paid
        return tracing

    def on_error(self, frame: FrameType, _: Callable[..., Any]) -> None:
        """
        Observe ``traceback_util._filtering_mode``, asked as an error leaves JAX.

        *frame* is JAX's API boundary; the entry below it in the traceback tells
        whether what it bounds is a call of a jitted function.
        """
        error = sys.exception()
        below = error.__traceback__.tb_next if error and error.__traceback__ else None
        if error is None or below is None or not self._clean():
            return
        if below.tb_frame.f_code.co_name != "cache_miss":
            return
        jitted = jitted_at(below.tb_frame, above=frame.f_back)
        if jitted is not None:
            self.function_of(jitted).count_error(failures.kind_of(error))
            self._remember(error)

    def on_uncaught(self, error: BaseException | None) -> None:
        """
        Count a runtime error of JAX that left a thread, a request or an activity,
        unless it was counted on its way there.

        A cached call that fails, or a device error found by whoever waits for the
        result, never passes the miss path; the function is then unknown.
        """
        if error is None or not failures.is_runtime_error(error):
            return
        if error not in self._counted_errors:
            self._table.named(UNKNOWN).count_error(failures.kind_of(error))
            self._remember(error)

    def _remember(self, error: BaseException) -> None:
        if failures.is_runtime_error(error):
            self._counted_errors.add(error)


def targets(jax: ModuleType) -> list[tuple[ModuleType, str]]:
    """
    Return the functions of *jax* to probe with `Misses.on_miss`.

    Raises:
        AttributeError: this JAX has no ``_infer_params``.
    """
    pjit: Any = jax._src.pjit  # noqa: SLF001
    api: Any = jax._src.api  # noqa: SLF001
    found = [(pjit, "_infer_params")]
    # pmap had its own cache to 0.7; since 0.8 _prepare_pmap only checks arguments.
    if hasattr(api, "_cpp_pmap") and hasattr(api, "_prepare_pmap"):
        found.append((api, "_prepare_pmap"))
    for module, name in found:
        getattr(module, name)
    return found
