"""Failures injected into every hook: the program does not notice."""

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest

from jaxmon.agent import Agent
from jaxmon.agent.guard import LIMIT
from tests.helpers import inside
from tests.helpers.adversaries import ACTIVE, ERRORS, Bomb, InjectedError
from tests.helpers.agents import instrumented, samples, value
from tests.helpers.processes import until


pytestmark = pytest.mark.contained


class UserError(Exception):
    """What the user's function raises."""


def refuse(_: Any) -> Any:
    raise UserError


def program() -> None:
    """Compile, hit, fail, and hand an error to the excepthooks."""
    jitted = jax.jit(lambda x: x + 1)
    assert jitted(np.float32(1)) == 2
    assert jitted(np.float32(2)) == 3
    assert jitted.lower(1.0).compile()(1.0) == 2
    assert jax.vmap(jitted)(np.ones(2)).tolist() == [2, 2]
    with pytest.raises(UserError):
        jax.jit(refuse)(1.0)
    with pytest.raises(TypeError):
        jitted()
    sys.excepthook(RuntimeError, runtime_error(), None)


def runtime_error() -> Exception:
    from jaxlib import xla_client

    kind: type[Exception] = getattr(jax.errors, "JaxRuntimeError", None) or (
        xla_client.XlaRuntimeError
    )
    return kind("INTERNAL: from a test")


def into_observer(name: str, owner: str) -> Callable[[Agent, Bomb], None]:
    """Return what lets the observer called *name* of the agent's part *owner* fail."""

    def inject(agent: Agent, bomb: Bomb) -> None:
        for probe in inside.probes(agent):
            (observe,) = probe._observing
            if getattr(observe, "__name__", "") == name:
                probe._observing[:] = [bomb]
        if owner == "listeners":
            listener = getattr(inside.listeners(agent), name.removeprefix("on"))
            at = listener.__code__.co_freevars.index("takes")
            listener.__closure__[at].cell_contents = Each(bomb)
        elif owner == "errors":
            setattr(inside.errors(agent), name, bomb)

    return inject


def into_call_layer(agent: Agent, bomb: Bomb) -> None:
    inside.calls(agent)._table = Holder(named=bomb)  # type: ignore[assignment]


def into_signatures(agent: Agent, bomb: Bomb) -> None:
    finder = inside.compiles(agent)._finder()
    assert finder is not None
    finder._signatures.of = bomb  # type: ignore[method-assign]


class Each:
    """A mapping that has *value* under every key."""

    def __init__(self, value: object) -> None:
        self._value = value

    def get(self, _: object) -> object:
        return self._value


class Holder:
    """A table without functions, which has *attributes* besides."""

    def __init__(self, **attributes: object) -> None:
        self.__dict__.update(attributes)

    def __iter__(self) -> Iterator[Any]:
        return iter(())


# hook: how to break it
HOOKS: dict[str, tuple[str, Callable[[Agent, Bomb], None]]] = {
    "call layer": ("calls", into_call_layer),
    "on_miss": ("misses", into_observer("on_miss", "probes")),
    "on_compile": ("compiles", into_observer("on_compile", "probes")),
    "signatures": ("causes", into_signatures),
    "on_error": ("errors", into_observer("on_error", "probes")),
    "on_event": ("monitoring", into_observer("on_event", "listeners")),
    "on_duration": ("monitoring", into_observer("on_duration", "listeners")),
    "on_uncaught": ("uncaught", into_observer("_is_counted", "errors")),
}


@pytest.fixture(autouse=True)
def silent_excepthooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep Python from printing the errors that tests hand to the excepthooks."""
    monkeypatch.setattr(sys, "excepthook", lambda *_: None)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)


@pytest.mark.parametrize("name", HOOKS)
def test_a_failing_hook_is_contained(silent_excepthooks, caplog, name):
    """
    Results and errors are the user's; the failure is counted, and logged once; a hook
    that keeps failing says so, is reported inactive, and is not called again.
    """
    hook, inject = HOOKS[name]
    with instrumented() as agent:
        bomb = Bomb()
        inject(agent, bomb)

        with caplog.at_level(logging.DEBUG, "jaxmon"):
            program()
            assert bomb.calls > 0
            assert value(agent, ERRORS, site=hook) == bomb.calls
            while bomb.calls < LIMIT:
                # A hook that misses how long compiles took says so at once.
                assert value(agent, ACTIVE, hook=hook) or name == "on_duration"
                program()
            assert value(agent, ACTIVE, hook=hook) == 0
            calls = bomb.calls
            program()

        assert bomb.calls == calls == LIMIT
        assert value(agent, ERRORS) == value(agent, ERRORS, site=hook) == LIMIT
        others = sum(name.startswith(ACTIVE) for name in samples(agent)) - 1
        assert value(agent, ACTIVE) == others
        first, second = caplog.records
        assert f"jaxmon failed in {hook}" in first.getMessage()
        assert first.exc_info is not None
        assert first.exc_info[0] is InjectedError
        assert second.getMessage() == (
            f"jaxmon keeps failing in {hook} and has disabled it"
        )


def test_modules_that_cannot_be_loaded_cost_causes_only(
    silent_excepthooks, agent, monkeypatch
):
    """A program compiles and is counted; once the modules load, so are causes."""
    function = jax.jit(lambda x: x + 1)
    with monkeypatch.context() as broken:
        # What Python raises for a module that is `None` here: ImportError.
        broken.setitem(sys.modules, "jaxmon.agent.recompiles.finder", None)
        for length in range(2, 2 + LIMIT):
            function(np.ones(length))
    assert value(agent, ERRORS, site="causes") == value(agent, ERRORS) == LIMIT
    assert value(agent, ACTIVE, hook="causes") == 1
    counted = inside.compiles(agent)._table.of(function)
    assert counted.compiles["compiled"].value == LIMIT

    function(np.ones(20))
    function(np.ones(21))
    assert value(agent, "jaxmon_recompiles_total", cause="shape") == 1


# part of the agent: the hook whose figures suffer, or its own name
PARTS = {
    "eval_shape": "calls",
    "watcher": "sampling",
    "cache": "persistent_cache",
    "programs": "programs",
    "oom": "oom",
}


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_switches_itself_off_says_so(agent: Agent, part: str) -> None:
    """It shows on the hook whose figures suffer, else under its own name."""
    program()
    before = {name: n for name, n in samples(agent).items() if name.startswith(ACTIVE)}
    for _ in range(LIMIT):
        try:
            Bomb()()
        except InjectedError:
            inside.guard(agent).failed(part)

    after = {name: n for name, n in samples(agent).items() if name.startswith(ACTIVE)}
    series = f'{ACTIVE}{{hook="{PARTS[part]}"}}'
    assert after[series] == 0
    assert {**before, series: 0} == after


def test_work_that_fails_until_it_is_given_up_says_so(agent: Agent) -> None:
    """When the thread that reads programs gives up, the page says so."""
    worker, bomb = inside.programs(agent)._worker, Bomb()
    series = f'{ACTIVE}{{hook="programs"}}'
    assert series not in samples(agent)
    for _ in range(LIMIT):
        worker.submit(bomb)

    until(lambda: samples(agent).get(series) == 0, "the worker to give up")
    assert bomb.calls == LIMIT
    assert not worker.submit(bomb)


@pytest.mark.parametrize("name", [n for n in HOOKS if n != "on_uncaught"])
def test_an_interrupt_passes_through_a_hook(name: str) -> None:
    """Ctrl-C that happens to arrive inside a hook reaches the program, uncounted."""
    _, inject = HOOKS[name]
    with instrumented() as agent:
        inject(agent, Bomb(KeyboardInterrupt))

        with pytest.raises(KeyboardInterrupt):
            program()

        assert value(agent, ERRORS) == 0


def test_the_end_of_a_compile_is_contained(agent, capsys):
    """A failure as the compile returns is counted as well, and prints nothing."""
    inside.compiles(agent)._unsettled = None  # type: ignore[assignment]

    assert jax.jit(lambda x: x * 2)(2.0) == 4

    assert value(agent, ERRORS, site="compiles") >= 1
    assert "Traceback" not in capsys.readouterr().err


def test_a_log_handler_that_raises_does_not_reach_the_program() -> None:
    """Telling of a failure may fail, too; the user's call still returns."""

    class Broken(logging.Handler):
        def emit(self, _: logging.LogRecord) -> None:
            raise InjectedError

    handler = Broken()
    logging.getLogger("jaxmon").addHandler(handler)
    try:
        with instrumented() as agent:
            for hook, inject in HOOKS.values():
                if hook != "calls":
                    inject(agent, Bomb())
            program()

            assert value(agent, ERRORS) > 0
    finally:
        logging.getLogger("jaxmon").removeHandler(handler)
