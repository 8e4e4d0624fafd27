"""Starts and stops the agent of this process, if it can count in this Python."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Unpack

from jaxmon import interrupts
from jaxmon.agent.agent import Agent, runtime_of, slot
from jaxmon.agent.guard import Guard, log
from jaxmon.errors import JaxmonError
from jaxmon.host import disclosure
from jaxmon.settings import Settings, load


if TYPE_CHECKING:
    from jaxmon.options import Options


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
    """Return the message of *error* as part of a sentence."""
    text = " ".join(str(error).split()).rstrip(".")
    if isinstance(error, ImportError) and text:
        return text
    name = type(error).__name__
    return f"{name}: {text}" if text else name
