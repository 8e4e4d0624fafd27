"""
XLA's profiler, which allows one session per process.

The program's own session takes precedence: ours does not start while the program has
one, and yields as soon as it starts one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import FrameType
from typing import Any

from jaxmon.agent.guard import Guard
from jaxmon.agent.jaxlink.listeners import Probe
from jaxmon.agent.jaxlink.patches import Patches


class Busy(Exception):  # noqa: N818 - another session is no error
    """The profiler is in use; the message says by what."""


@contextmanager
def reserved(jax: Any) -> Iterator[None]:
    """Keep the program from starting or stopping a profile; `Busy` if it has one."""
    state = jax._src.profiler._profile_state  # noqa: SLF001 - no public way
    # Held by JAX while the program starts or stops its own.
    if not state.lock.acquire(blocking=False):
        raise Busy(_OWN)
    try:
        session = getattr(state, "profile_session", None)
        # Its name since 0.12.
        if session is not None or getattr(state, "session", None) is not None:
            raise Busy(_OWN)
        yield
    finally:
        state.lock.release()


_OWN = "the program is profiling itself"


class ProfilerSession:
    """A profiling session of ours; *make_way* is called before the program has one."""

    def __init__(
        self, jax: Any, make_way: Callable[[], None], *, guard: Guard, site: str
    ) -> None:
        self._module = module_of(jax)
        self._make_way = make_way
        self._guard = guard
        self._site = site
        self._patches = Patches()
        self._session: Any = None

    def begin(self, platform: str, *, programs: bool = False) -> None:
        """Record devices of *platform*, and loaded *programs* at the end; or `Busy`."""
        # From 0.5 to 0.7 the CPU reports operations at this level only.
        level = 3 if platform == "cpu" else 2
        options = _options(self._module, host_level=level, programs=programs)
        original = self._module.ProfilerSession
        with _alone():
            self._session = original(options)
        # From here on, a session of the program ends ours first. JAX, from 0.4.35 on,
        # looks the class up in its module each time.
        probe = Probe(original, self._on_other, guard=self._guard, site=self._site)
        self._patches.replace(self._module, "ProfilerSession", probe)

    def stop(self) -> bytes:
        """Stop recording and return the trace; `Busy` if another was first."""
        self.release()
        session, self._session = self._session, None
        with _alone():
            return bytes(session.stop())

    def discard(self) -> None:
        """
        Stop recording without a trace, which takes a fifth of the time. XLA would copy
        programs nevertheless, with the GIL held.
        """
        self.release()
        self._session = None

    def release(self) -> None:
        """Stop intercepting the program's own sessions."""
        self._patches.undo()

    def _on_other(self, _: FrameType, __: Any) -> None:
        self._make_way()


def module_of(jax: Any) -> Any:
    """Return the module of the profiler's session: a separate one since JAX 0.6."""
    try:
        return import_module("jax._src.lib")._profiler  # noqa: SLF001
    except AttributeError:
        return jax._src.lib.xla_client.profiler  # noqa: SLF001


def programs(jax: Any) -> bytes:
    """Return a trace of the loaded programs alone, without the GIL; or `Busy`."""
    module = module_of(jax)
    options = _options(module, host_level=0, programs=True)
    with _alone():
        return bytes(module.ProfilerSession(options).stop())


def _options(module: Any, *, host_level: int, programs: bool) -> Any:
    options = module.ProfileOptions()
    options.python_tracer_level = 0  # its frames would slow the program down more
    options.host_tracer_level = host_level
    options.enable_hlo_proto = programs
    if hasattr(options, "raise_error_on_start_failure"):
        options.raise_error_on_start_failure = True
    return options


@contextmanager
def _alone() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        first = str(error).partition("\n")[0][:200]
        msg = f"another profiler is active in this process: {first}"
        raise Busy(msg) from error
