"""
The agent of this process, at most one: its public handle, and how it starts and stops,
if it can count in this Python.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Unpack

from jaxmon import interrupts
from jaxmon.agent.guard import Guard, log
from jaxmon.clocks import wall_time
from jaxmon.errors import JaxmonError
from jaxmon.exposition.families import Family
from jaxmon.host import disclosure
from jaxmon.settings import Settings, load
from jaxmon.threads import RLock


if TYPE_CHECKING:
    from jaxmon.agent.checks.determinism import DeterminismPart
    from jaxmon.agent.memory.profile import MemoryProfile
    from jaxmon.agent.runtime import Runtime
    from jaxmon.options import Options


# A fork waits so long at most while a part is being loaded, which takes milliseconds.
_LOAD_SECONDS = 5.0


class Agent:
    """
    What `jaxmon.instrument` returns.

    A disabled agent observes nothing; all its methods still work, without JAX.
    """

    def __init__(self, settings: Settings, runtime: Runtime | None = None) -> None:
        self.settings = settings
        self._runtime = runtime

    def __repr__(self) -> str:
        state = "running" if self.running else "stopped"
        return f"<jaxmon.Agent {state} url={self.url!r} socket={self.socket!r}>"

    @property
    def running(self) -> bool:
        """Whether the agent is observing."""
        return self._runtime is not None and self._runtime.running

    @property
    def url(self) -> str | None:
        """URL of the metrics, `None` if no TCP port is open."""
        return None if self._runtime is None else self._runtime.serving.url

    @property
    def socket(self) -> str | None:
        """Path of the Unix socket, `None` if there is none."""
        return None if self._runtime is None else self._runtime.serving.socket

    @property
    def determinism(self) -> DeterminismPart:
        """Results of determinism and gradient checks."""
        from jaxmon.agent.checks.determinism import DeterminismPart  # noqa: PLC0415

        found = None if self._runtime is None else self._runtime.part(DeterminismPart)
        if found is None:
            from jaxmon.agent.context import context_of  # noqa: PLC0415

            found = DeterminismPart(context_of(None, self.settings))
        return found

    def refresh(self) -> None:
        """
        Take a snapshot of device memory and live arrays now, ahead of the next
        interval.

        Costs about 2 µs per live array. Failures are counted, not raised.
        """
        if self._runtime is not None:
            self._runtime.refresh()

    def memory(self) -> MemoryProfile:
        """
        Return live memory by the source line of the program that allocated it.

        Compare two profiles with ``later.growth_since(earlier)``. Costs about 1 µs per
        live array, holding the GIL; allocates nothing on a device. Empty if the agent
        is disabled.

        Raises:
            ProfileError: JAX's memory profile cannot be read.
        """
        from jaxmon.agent.memory.lines import MemoryLines  # noqa: PLC0415
        from jaxmon.agent.memory.profile import MemoryProfile  # noqa: PLC0415

        found = None if self._runtime is None else self._runtime.part(MemoryLines)
        return MemoryProfile(wall_time(), ()) if found is None else found.profile()

    def collect(self) -> list[Family]:
        """Return all metric families. Thread-safe; about 20 µs per function."""
        return [] if self._runtime is None else self._runtime.collect()


def runtime_of(agent: Agent) -> Runtime | None:
    """Return the runtime behind *agent*, `None` if the agent is disabled."""
    return agent._runtime  # noqa: SLF001 - of the same module


class AgentSlot:
    """Holds the agent of this process; `lock` is held while one starts or stops."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.agent: Agent | None = None
        self._watches_forks = False
        self._loading = RLock()

    def watch_forks(self) -> None:
        """Make forked children abandon the parent's agent."""
        # Python cannot remove a fork handler, so there is only ever one.
        if not self._watches_forks:
            self._watches_forks = True
            os.register_at_fork(
                before=self._before_fork,
                after_in_parent=self._after_fork_in_parent,
                after_in_child=self._after_fork,
            )

    def _before_fork(self) -> None:
        """Wait until no part is being loaded: see `jaxmon.agent.part.Loading`."""
        runtime = None if self.agent is None else runtime_of(self.agent)
        if runtime is not None:
            self._loading = runtime.loading
            self._loading.acquire(timeout=_LOAD_SECONDS)

    def _after_fork_in_parent(self) -> None:
        with interrupts.expected(RuntimeError):  # the part took longer to load
            self._loading.release()

    def _after_fork(self) -> None:
        agent, self.agent = self.agent, None
        self.lock = RLock()
        runtime = None if agent is None else runtime_of(agent)
        if runtime is not None:
            runtime.abandon()


slot = AgentSlot()
"""The slot of this process."""


def running() -> Agent | None:
    """Return this process's running agent, if any."""
    agent = slot.agent
    return agent if agent is not None and agent.running else None


def unsupported() -> str | None:
    """
    Return why the agent must not start in this interpreter; `None` if it may.

    A free-threaded Python gets its lock back for good when a library is imported that
    needs it, so ask once JAX has been imported.
    """
    # Since 3.13; before, there is always a lock.
    has_lock = getattr(sys, "_is_gil_enabled", None)
    if has_lock is None or has_lock():
        return None
    version = ".".join(map(str, sys.version_info[:3]))
    return (
        f"Python {version} runs without its global interpreter lock (GIL), which "
        "jaxmon needs to count correctly; set PYTHON_GIL=1, or use a Python that is "
        "not free-threaded"
    )


_NOT_STARTED = "jaxmon could not start; the program runs without it"


def instrument(**options: Unpack[Options]) -> Agent:
    """
    Start observing JAX in this process and serve the metrics.

    A second call returns the running agent; differing settings are logged and ignored.
    Settings are described by `jaxmon.settings.Settings`.

    Example:
        >>> import jaxmon
        >>> agent = jaxmon.instrument(port=0)
        >>> print(agent.url)  # doctest: +SKIP
        http://127.0.0.1:40953/metrics

    Any other failure, or a Python without its GIL, is logged as one warning; the
    returned agent is then disabled, and the program unchanged.

    Raises:
        SettingsError: a setting is invalid.
        JaxmonError: JAX cannot be imported, or a library that a setting needs.
    """
    settings = load(options)
    if not settings.enabled:
        return Agent(settings)
    if settings.traces and find_spec("opentelemetry") is None:
        msg = (
            "traces=True needs OpenTelemetry's SDK, which is not installed; run "
            "`pip install 'jaxmon[otel]'`, or leave out the setting"
        )
        raise JaxmonError(msg)
    # First, because the import may start an agent: `jaxmon run` waits for it.
    jax = _jax()
    if (problem := unsupported()) is not None:
        log.warning("%s: %s", _NOT_STARTED, problem)
        return Agent(settings)
    with slot.lock:
        running = slot.agent
        if running is not None and running.running:
            if options and settings != running.settings:
                log.warning(
                    "jaxmon is already running with %s; %s is ignored. Call "
                    "jaxmon.uninstrument() first to change settings.",
                    running.settings,
                    settings,
                )
            return running
        try:
            return _start(jax, settings)
        # A program's module that shadows one of Python's may exit.
        except (Exception, SystemExit) as error:
            interrupts.pass_on(error)
            if Guard.strict:
                raise
            log.warning("%s: %s", _NOT_STARTED, disclosure.error(error))
            return Agent(settings)


def uninstrument() -> None:
    """
    Stop observing and restore attributes, listeners, threads and files.

    Does nothing if no agent is running. Functions jitted meanwhile keep working.
    """
    with slot.lock:
        if slot.agent is not None:
            if (runtime := runtime_of(slot.agent)) is not None:
                runtime.stop()
            slot.agent = None


def _start(jax: ModuleType, settings: Settings) -> Agent:
    from jaxmon.agent.runtime import Runtime  # noqa: PLC0415 - what may go wrong

    runtime = Runtime(jax, settings)
    agent = Agent(settings, runtime)
    slot.watch_forks()
    # Stored before it starts, so that a fork meanwhile can abandon it.
    slot.agent = agent
    try:
        runtime.start()
    except BaseException:
        slot.agent = None
        raise
    return agent


def _jax() -> ModuleType:
    problem: str | None = None
    printed = interrupts.printed()
    try:
        return import_module("jax")
    # Its own version checks, or a program's file that shadows a Python module, may
    # raise anything, or exit.
    except (Exception, SystemExit) as error:  # noqa: BLE001 - said in a sentence
        interrupts.pass_on(error)
        interrupts.pass_on_printed(since=printed)
        problem = _in_a_sentence(error)
    # Raised here, so that the message is all the user sees.
    msg = (
        f"jaxmon.instrument() needs JAX, and importing it failed: {problem}. "
        "Install the JAX build for your hardware, or run `pip install "
        "'jaxmon[jax]'` to try it out."
    )
    raise JaxmonError(msg)


def _in_a_sentence(error: BaseException) -> str:
    text = " ".join(str(error).split()).rstrip(".")
    if isinstance(error, ImportError) and text:
        return text
    name = type(error).__name__
    return f"{name}: {text}" if text else name
