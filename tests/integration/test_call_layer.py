"""
The call layer from many threads, on its way off, and where JAX is not as expected.
"""

import functools
import gc
import sys
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmon
from jaxmon.agent import counted
from jaxmon.agent.jaxlink import jit as codes
from tests.helpers import inside
from tests.helpers.agents import at_once, instrumented, switching_often, value


CALLS = "jaxmon_jit_calls_total"
HITS = "jaxmon_jit_cache_hits_total"

THREADS = 32
EACH = 300


def in_threads(
    run: Callable[[int], None], threads: int = THREADS
) -> list[BaseException]:
    """Run *run* in many threads that begin together; return what they raised."""
    barrier, raised = threading.Barrier(threads), list[BaseException]()

    def start(number: int) -> None:
        barrier.wait()
        try:
            run(number)
        except BaseException as error:  # noqa: BLE001 - told to the test
            raised.append(error)

    with switching_often():
        at_once(*[partial(start, n) for n in range(threads)])
    return raised


class Noting:
    """Waits for calls, and notes those that began."""

    def __init__(self) -> None:
        self.begun: list[int] = []

    def begin(self, one: Any, jitted: Any, frame: Any, /) -> None:
        del one, jitted, frame
        self.begun.append(1)


@pytest.mark.ground_truth
def test_every_call_of_every_thread_counts_once() -> None:
    """No call of shared, new or armed functions is lost, doubled or wrong."""
    noting = Noting()
    with instrumented(sample_rate=0) as agent:

        def work(x: Any) -> Any:
            return x + 1

        shared = jax.jit(work)
        x = jnp.ones(())
        shared(x)

        def run(number: int) -> None:
            own = jax.jit(work)
            for turn in range(EACH):
                if turn % 10 == number % 10:
                    counted.arm(shared, noting)
                step = shared if turn % 2 else own
                assert step(x) == 2.0

        raised = in_threads(run)

        label = f"{__name__}.{work.__qualname__}"
        assert raised == []
        assert value(agent, CALLS, function=label) == 1 + THREADS * EACH
        assert counted.call_count(shared) == 1 + THREADS * EACH // 2
        assert noting.begun
        assert value(agent, "jaxmon_internal_errors_total") == 0


@pytest.mark.ground_truth
def test_calls_go_on_while_the_agent_goes() -> None:
    """Threads that call, compile and jit while agents come and go see nothing of it."""
    ended = threading.Event()

    def agents() -> None:
        while not ended.is_set():
            with instrumented(sample_rate=100):
                ended.wait(0.02)

    def run(number: int) -> None:
        for turn in range(2):
            step = jax.jit(lambda x: x * 2)
            argument = np.full(1 + (number + turn) % 3, 3.0, np.float32)
            assert step(argument)[0] == 6.0
            for _ in range(5):
                assert step(argument)[0] == 6.0

    coming_and_going = threading.Thread(target=agents)
    coming_and_going.start()
    try:
        raised = in_threads(run, 12)
    finally:
        ended.set()
        coming_and_going.join()

    assert raised == []


def traced(agent: Any, make: Callable[..., Any], argument: Any) -> tuple[float, float]:
    """
    Return calls and hits of a function of which one call is made while another
    function is traced, and two by the program.
    """

    def work(x: Any) -> Any:
        return x + 1

    inner = make(work)
    jax.jit(lambda x: inner(x) * 2)(argument)
    inner(argument), inner(argument)
    label = f"{__name__}.{work.__qualname__}"
    return value(agent, CALLS, function=label), value(agent, HITS, function=label)


@pytest.mark.ground_truth
def test_traced_calls_are_told_apart_where_codes_do_not_tell(monkeypatch):
    """Wrapped jitted functions share a code; their variables distinguish them."""
    pjit: Any = sys.modules["jax._src.pjit"]
    theirs = pjit._cpp_pjit

    @functools.wraps(theirs)
    def wrapper(*args: Any) -> Any:
        return theirs(*args)

    monkeypatch.setattr(pjit, "_cpp_pjit", wrapper)
    with instrumented() as agent:
        assert not inside.registry(agent).codes_tell
        assert traced(agent, jax.jit, jnp.ones(3)) == (2, 1)


@pytest.mark.ground_truth
def test_traced_calls_of_a_pmapped_function_are_told_apart() -> None:
    """Pmapped functions have no code of their own; their variables distinguish them."""
    with instrumented() as agent:
        assert inside.registry(agent).codes_tell
        assert traced(agent, jax.jit, jnp.ones(3)) == (2, 1)
        assert traced(agent, jax.pmap, jnp.ones((1, 3))) == (2 + 2, 1 + 1)
        assert not inside.registry(agent).codes_tell


def test_functions_of_one_label_share_code() -> None:
    """Objects created repeatedly leave nothing behind but their label's code."""
    with instrumented() as agent:
        registry = inside.registry(agent)
        for _ in range(20):
            step = jax.jit(lambda x: x + 1)
            step(1.0)
        other = jax.jit(lambda x: x - 1)  # of the same label
        function = registry.by_key(getattr(other, "_jit_info", None)) or next(
            iter(registry._makers)
        )
        reference = weakref.ref(step)
        del step, other
        gc.collect()

        assert reference() is None
        assert list(registry._makers) == [function]
        assert len(registry.by_code) == 1
        assert registry._entries == {}


@pytest.mark.contained
def test_an_agent_that_cannot_copy_code_counts_all_the_same(monkeypatch):
    """A code object that JAX shapes in some other way costs the short cut, no count."""

    def refuse(*_: Any) -> Any:
        raise ValueError

    monkeypatch.setattr(codes, "with_code", refuse)
    with instrumented() as agent:
        assert traced(agent, jax.jit, jnp.ones(3)) == (2, 1)
        assert value(agent, "jaxmon_internal_errors_total", site="calls") >= 1


def test_a_pmap_that_is_no_attribute_of_its_own_is_left_alone(monkeypatch):
    """A `pmap` from the module's ``__getattr__`` stays; `jax.jit` is still counted."""
    pmap = jax.pmap
    monkeypatch.delattr(jax, "pmap")
    monkeypatch.setattr(jax, "__getattr__", {"pmap": pmap}.__getitem__)
    with instrumented() as agent:
        assert inside.hooks(agent).is_active("calls")
        assert jax.pmap is pmap
        assert traced(agent, jax.jit, jnp.ones(3)) == (2, 1)


def test_a_layer_that_cannot_attach_has_touched_nothing(monkeypatch, caplog):
    """If JAX lacks a place, what is made is JAX's own, and that is said."""
    pjit, before = jax._src.pjit, jax._src.pjit._cpp_pjit
    monkeypatch.delattr(jax._src.api, "eval_shape")
    with instrumented() as agent:
        assert not inside.hooks(agent).is_active("calls")
        assert pjit._cpp_pjit is before
        assert not isinstance(jax.jit(lambda x: x), counted.CountedFunction)

    assert "'calls' cannot attach" in caplog.text


def test_exported_programs_are_counted_each_as_its_own() -> None:
    """Each ``call`` counts as its own; to jit another one compiles nothing."""
    from jax import export

    def serve(x: Any) -> Any:
        return x * 2

    programs = [export.export(jax.jit(serve))(jnp.ones(size)) for size in (3, 4)]
    with instrumented() as agent:
        for program, size in zip(programs, (3, 4), strict=True):
            call, given = jax.jit(program.call), jnp.ones(size)
            for _ in range(5):
                call(given).block_until_ready()
        name = {"function": f"exported.{programs[0].fun_name}"}
        assert value(agent, CALLS, **name) == 10
        assert value(agent, HITS, **name) == 8
        compiled = value(agent, "jaxmon_compiles_total", outcome="compiled", **name)
        assert compiled == 2
        assert value(agent, "jaxmon_recompiles_total", **name) == 0


STATIC = functools.partial(jax.jit, static_argnums=1)


def refused_by_python() -> dict[str, Callable[[Callable[..., Any]], Any]]:
    """
    Return calls of a function of an array and a static number that JAX's Python code
    refuses.
    """
    gone = jnp.ones(3)
    gone.delete()
    return {
        "too many": lambda f: f(1.0, 2, 3),
        "too few": lambda f: f(),
        "no static argument": lambda f: f(1.0),
        "an unknown name": lambda f: f(1.0, 2, z=3),
        "a name twice": lambda f: f(1.0, 2, x=3),
        "text": lambda f: f("text", 2),
        "an object": lambda f: f(object(), 2),
        "objects": lambda f: f(np.array([object()]), 2),
        "a large number": lambda f: f(2**100, 2),
        "a deleted array": lambda f: f(gone, 2),
        "no tracing": untraced,
    }


def untraced(f: Callable[..., Any]) -> Any:
    with jax.no_tracing() if hasattr(jax, "no_tracing") else _no_tracing():
        return f(np.ones(7), 2)


def _no_tracing() -> Any:
    return jax._src.config.no_tracing(True)  # noqa: FBT003 - JAX's


class Unhashable:
    __hash__ = None  # type: ignore[assignment]


# C++ refuses these without a word to Python.
REFUSED_IN_C: dict[str, Callable[[Callable[..., Any]], Any]] = {
    "unhashable": lambda f: f(1.0, []),
    "unhashable by name": lambda f: f(1.0, n=Unhashable()),
    "keys without an order": lambda f: f({1: 1.0, "a": 1.0}, 2),
}


@pytest.mark.ground_truth
@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("make", ["jit", "early"])
def test_calls_that_python_refuses_are_misses_and_errors(warm: bool, make: str) -> None:  # noqa: FBT001
    """Each is one call, one miss and one error, whether it was called before or not."""

    def work(x: Any, n: int) -> Any:
        return x * n

    def kinds(agent: Any) -> float:
        return value(agent, "jaxmon_errors_total", function=label)

    label = f"{__name__}.{work.__qualname__}"
    early = STATIC(work)
    counted_here = make == "jit"
    with instrumented(sample_rate=0) as agent:
        f = STATIC(work) if counted_here else early
        if warm:
            f(1.0, 2)
        for number, (name, call) in enumerate(refused_by_python().items(), start=1):
            with pytest.raises((TypeError, ValueError, RuntimeError, OverflowError)):
                call(f)
            calls = (number + warm) * counted_here
            assert value(agent, CALLS, function=label) == calls, name
            assert value(agent, HITS, function=label) == 0, name
            misses = value(agent, "jaxmon_jit_cache_misses_total", function=label)
            assert misses == number + warm, name
            assert kinds(agent) == number, name


@pytest.mark.ground_truth
@pytest.mark.parametrize("name", REFUSED_IN_C)
def test_calls_that_only_c_plus_plus_sees_are_hits(name: str) -> None:
    """The known limit that `docs/decisions/0004-what-the-counts-mean.md` names."""
    with instrumented(sample_rate=0) as agent:
        f = STATIC(lambda x, n: (x, n))
        with pytest.raises(ValueError):  # noqa: PT011 - JAX's words differ
            REFUSED_IN_C[name](f)
        assert value(agent, CALLS) == value(agent, HITS) == 1
        assert value(agent, "jaxmon_errors_total") == 0


@pytest.mark.ground_truth
@pytest.mark.parametrize("name", REFUSED_IN_C)
def test_what_only_c_plus_plus_refuses_is_an_error_where_it_surfaces(name: str) -> None:
    """As what leaves any cached call: once, at the innermost mark that it leaves."""
    with instrumented(sample_rate=0) as agent:
        f = STATIC(lambda x, n: (x, n))
        inside = jaxmon.activity("outer"), jaxmon.request("inner")
        with pytest.raises(ValueError), inside[0], inside[1]:  # noqa: PT011
            REFUSED_IN_C[name](f)
        kinds = {"function": "unknown", "kind": "invalid_argument"}
        assert value(agent, "jaxmon_errors_total") == 1
        assert value(agent, "jaxmon_errors_total", **kinds) == 1
