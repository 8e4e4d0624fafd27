"""
What stays after `jaxmon.uninstrument`, and what jitted functions are meanwhile.
"""

from __future__ import annotations

import copy
import functools
import gc
import inspect
import pickle
import sys
import threading
import traceback
import urllib.request
import weakref
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmon
from jaxmon.agent import Agent
from jaxmon.agent.calling.counted import CountedFunction
from tests import leaks
from tests.instrumented import SILENT, instrumented, value


CALLS = "jaxmon_jit_calls_total"
HITS = "jaxmon_jit_cache_hits_total"
MISSES = "jaxmon_jit_cache_misses_total"

# Bound before any agent: JAX's own.
PLAIN_JIT = jax.jit
PLAIN_PMAP = jax.pmap


@pytest.fixture
def agent() -> Iterator[Agent]:
    """
    Return an agent that serves nothing.
    """
    with instrumented() as running:
        yield running


# --- as found -----------------------------------------------------------------


def test_everything_is_as_found(run_dir: Path) -> None:
    """
    Attributes, listeners, threads, descriptors and the run directory are restored.
    """
    jax.jit(lambda x: x + 1)(1.0)  # backends and their threads are up
    before = leaks.snapshot()

    agent = jaxmon.instrument(port=0, memory_interval=0.1)
    during = leaks.snapshot()
    with urllib.request.urlopen(str(agent.url), timeout=10) as page:
        page.read()
    files = sorted(path.name for path in run_dir.iterdir())
    jaxmon.uninstrument()
    after = leaks.snapshot()

    changed = {
        place
        for place, found in during.attributes.items()
        if found is not before.attributes[place]
    }
    assert ("jax", "jit") not in changed
    assert changed >= {
        ("jax", "pmap"),
        ("jax._src.pjit", "_cpp_pjit"),
        ("jax._src.compiler", "compile_or_get_cached"),
        ("jax._src.pjit", "_infer_params"),
        ("jax._src.traceback_util", "_filtering_mode"),
        ("sys", "excepthook"),
        ("threading", "excepthook"),
    }
    assert during.threads > before.threads
    started = sorted(thread.name for thread in during.threads - before.threads)
    assert started == list(leaks.THREADS)
    assert during.listeners != before.listeners
    assert files == ["agent-0.lock", "agent-0.sock"]
    assert after.listeners == before.listeners
    assert after.threads == before.threads
    assert after.descriptors == before.descriptors
    for place, found in before.attributes.items():
        assert after.attributes[place] is found, place
    assert list(run_dir.iterdir()) == []
    assert agent.url is None
    assert agent.socket is None


def test_the_function_that_eval_shape_calls_is_as_found(agent: Agent) -> None:
    """
    ``jax._src.api.jit``, which is patched since JAX 0.9, is put back as well.
    """
    api = sys.modules["jax._src.api"]
    patched = api.jit

    jaxmon.uninstrument()

    assert api.jit is PLAIN_JIT
    if "PjitFunction" in api.eval_shape.__code__.co_names:
        assert patched is not PLAIN_JIT


def test_uninstrument_without_an_agent_does_nothing() -> None:
    """
    Before, after and twice after an agent, it is harmless.
    """
    jaxmon.uninstrument()
    with instrumented() as agent:
        jaxmon.uninstrument()
        jaxmon.uninstrument()
        agent.stop()

    assert jax.jit is PLAIN_JIT


def test_twenty_rounds_leave_nothing(run_dir: Path) -> None:
    """
    Descriptors, threads, listeners and the agents themselves do not pile up.
    """

    def one_round() -> weakref.ref[Any]:
        agent = jaxmon.instrument(port=0, memory_interval=0.1)
        jax.jit(lambda x: x * 2)(np.ones(2))
        jaxmon.uninstrument()
        return weakref.ref(agent)

    one_round()
    gc.collect()
    before = leaks.snapshot()
    agents = [one_round() for _ in range(20)]
    gc.collect()
    after = leaks.snapshot()

    assert [agent for agent in agents if agent() is not None] == []
    assert after.descriptors == before.descriptors
    assert after.threads == before.threads
    assert after.listeners == before.listeners
    assert list(run_dir.iterdir()) == []


def test_an_agent_runs_again_after_uninstrument() -> None:
    """
    A second agent counts from zero, and early-bound functions reach it by misses.
    """
    with instrumented():
        counted = jax.jit(lambda x: x + 1)
        counted(1.0)
    with instrumented() as second:
        counted(1.0)
        counted(np.ones(3))

        assert value(second, CALLS) == 0
        assert value(second, MISSES, function=f"{__name__}.{LAMBDA_OF_AGAIN}") == 1


LAMBDA_OF_AGAIN = "test_an_agent_runs_again_after_uninstrument.<locals>.<lambda>"


# --- somebody else patched, too -----------------------------------------------


def test_a_later_wrapper_of_the_factory_stays_and_ours_is_inert(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    Their wrapper around what makes jitted functions works on, and nothing is counted.
    """
    pjit: Any = sys.modules["jax._src.pjit"]
    monkeypatch.setattr(pjit, "_cpp_pjit", pjit._cpp_pjit)  # restores it at the end
    seen: list[object] = []
    agent = jaxmon.instrument(**SILENT)
    ours = pjit._cpp_pjit

    @functools.wraps(ours)
    def theirs(*args: Any) -> Any:
        seen.append(args)
        return ours(*args)

    pjit._cpp_pjit = theirs
    jaxmon.uninstrument()

    assert pjit._cpp_pjit is theirs
    jitted = jax.jit(lambda x: x + 1)
    decorated = jax.jit(static_argnums=0)(lambda n, x: x * n) if DECORATES else jitted
    assert not isinstance(jitted, CountedFunction)
    assert type(decorated) is type(jitted)
    assert len(seen) == 1 + DECORATES
    assert jitted(1.0) == 2.0
    assert value(agent, CALLS) == value(agent, MISSES) == 0


def test_functions_made_by_an_earlier_bound_jit_are_counted(agent: Agent) -> None:
    """
    What ``from jax import jit`` bound before us makes counted functions as well.
    """
    early = PLAIN_JIT(lambda x: x + 1)
    early(1.0)
    early(1.0)

    assert value(agent, CALLS) == 2
    assert value(agent, HITS) == 1


DECORATES = inspect.signature(PLAIN_JIT).parameters["fun"].default is not inspect._empty


def test_a_later_wrapper_of_the_miss_path_stays_and_ours_is_inert(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    Functions compile through their ``_infer_params``, and nothing is counted.
    """
    pjit: Any = sys.modules["jax._src.pjit"]
    monkeypatch.setattr(pjit, "_infer_params", pjit._infer_params)
    seen: list[object] = []
    agent = jaxmon.instrument(**SILENT)
    ours = pjit._infer_params

    @functools.wraps(ours)
    def theirs(*args: Any, **kwargs: Any) -> Any:
        seen.append(args)
        return ours(*args, **kwargs)

    pjit._infer_params = theirs
    during = jax.jit(lambda x: x + 1)
    during(np.ones(3))
    counted = value(agent, MISSES)
    jaxmon.uninstrument()
    during(np.ones(4))
    jax.jit(lambda x: x - 1)(np.ones(3))

    assert pjit._infer_params is theirs
    assert len(seen) >= 3
    assert value(agent, MISSES) == counted


def test_a_later_excepthook_stays_and_ours_is_inert(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    Both excepthooks of a third party keep working, and errors are not counted.
    """
    told: list[object] = []
    monkeypatch.setattr(sys, "excepthook", lambda *args: told.append(args[1]))
    monkeypatch.setattr(threading, "excepthook", lambda args: told.append(args[1]))
    agent = jaxmon.instrument(**SILENT)
    ours, ours_of_threads = sys.excepthook, threading.excepthook

    def theirs(*args: Any) -> None:
        told.append("theirs")
        ours(*args)

    def theirs_of_threads(args: Any) -> None:
        told.append("theirs")
        ours_of_threads(args)

    sys.excepthook, threading.excepthook = theirs, theirs_of_threads
    jaxmon.uninstrument()
    error = runtime_error()
    sys.excepthook(type(error), error, None)
    other = runtime_error()
    thread = threading.Thread(target=raises(other))
    thread.start()
    thread.join()

    assert sys.excepthook is theirs
    assert threading.excepthook is theirs_of_threads
    assert told == ["theirs", error, "theirs", other]
    assert value(agent, "jaxmon_errors_total") == 0


def runtime_error() -> Exception:
    """
    Return what a deleted array raises: an error of the XLA runtime.
    """
    array = jnp.ones(3)
    array.delete()
    from jaxlib import xla_client

    kind: type[Exception] = getattr(jax.errors, "JaxRuntimeError", None) or (
        xla_client.XlaRuntimeError
    )
    return kind("INTERNAL: from a test")


def raises(error: Exception) -> Callable[[], None]:
    def run() -> None:
        raise error

    return run


def test_cleared_listeners_come_back_and_go(agent: Agent) -> None:
    """
    After `clear_event_listeners` a scrape listens again; uninstrument is unharmed.
    """
    before = leaks.snapshot()
    jax.monitoring.clear_event_listeners()
    assert leaks.snapshot().listeners != before.listeners

    value(agent, CALLS)

    assert leaks.snapshot().listeners == before.listeners
    jax.monitoring.clear_event_listeners()
    jaxmon.uninstrument()
    monitoring = sys.modules["jax._src.monitoring"]
    assert monitoring.get_event_listeners() == []
    assert monitoring.get_event_duration_listeners() == []


def test_listeners_of_others_stay(agent: Agent) -> None:
    """
    A listener that was registered after ours hears on after uninstrument().
    """
    heard: list[str] = []

    def listen(event: str, *_: object, **__: object) -> None:
        heard.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        jaxmon.uninstrument()
        jax.jit(lambda x: x + 3)(np.ones(7))
    finally:
        jax.monitoring.clear_event_listeners()

    assert "/jax/core/compile/backend_compile_duration" in heard


# --- like JAX's own -----------------------------------------------------------


def body(x: Any, n: int = 2) -> Any:
    """
    Multiply.
    """
    return x * n


body_itself = body


class Model:
    def __init__(self, jit: Callable[..., Any]) -> None:
        self.bound = jit(self.plus)

    def plus(self, x: Any) -> Any:
        return x + 1


def method_of(jit: Callable[..., Any]) -> Any:
    class Owner:
        scale = 3

        @functools.partial(jit, static_argnums=0)
        def times(self, x: Any) -> Any:
            return x * self.scale

        @classmethod
        @functools.partial(jit, static_argnums=0)
        def kind(cls, x: Any) -> Any:
            return x * cls.scale

        @staticmethod
        @jit
        def free(x: Any) -> Any:
            return x * 5

    owner = Owner()
    return (
        owner.times(2.0),
        Owner.times(owner, 2.0),
        Owner.kind(2.0),
        owner.free(2.0),
        inspect.ismethod(owner.times),
        owner.times.__self__ is owner,
        owner.times == owner.times,
        str(inspect.signature(owner.times)),
        owner.times.__name__,
    )


def attributes_of(jitted: Any) -> dict[str, Any]:
    names = (
        "__module__",
        "__name__",
        "__qualname__",
        "__doc__",
        "__annotations__",
        "__wrapped__",
    )
    return {name: getattr(jitted, name, "none") for name in names}


def custom_rules(jit: Callable[..., Any]) -> Any:
    @jax.custom_vjp  # type: ignore[untyped-decorator]
    @jit
    def doubled(x: Any) -> Any:
        return x * 2

    doubled.defvjp(jit(lambda x: (x * 2, None)), jit(lambda _, g: (g * 7,)))

    @jax.custom_jvp  # type: ignore[untyped-decorator]
    @jit
    def tripled(x: Any) -> Any:
        return x * 3

    tripled.defjvp(jit(lambda primals, tangents: (primals[0] * 3, tangents[0] * 9)))
    return jax.grad(doubled)(1.0), jax.grad(jit(tripled))(1.0)


def sharded(jit: Callable[..., Any]) -> Any:
    shard_map: Any = getattr(jax, "shard_map", None)
    if shard_map is None:
        shard_map = import_module("jax.experimental.shard_map").shard_map
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("i",))
    spec = jax.sharding.PartitionSpec("i")
    inner = shard_map(jit(body), mesh=mesh, in_specs=(spec,), out_specs=spec)
    return inner(np.ones(4)), jit(inner)(np.ones(4))


def exported(jit: Callable[..., Any]) -> Any:
    pytest.importorskip("absl")  # jax.export of 0.4.35 needs it
    from jax import export

    return export.export(jit(body, static_argnums=1))(np.ones(3), 2).mlir_module()


def ahead_of_time(jit: Callable[..., Any]) -> Any:
    jitted = jit(body, static_argnums=1)
    lowered = jitted.lower(np.ones(3), 2)
    traced = jitted.trace(np.ones(3), 2)
    return (
        lowered.as_text(),
        lowered.compile()(np.ones(3)),
        str(traced.jaxpr),
        traced.lower().compile()(np.ones(3)),
        jitted.eval_shape(np.ones(3), 2),
    )


def caches(jit: Callable[..., Any]) -> Any:
    jitted = jit(lambda x: x + 1)
    sizes = [jitted._cache_size()]
    for shape in (1, 2, 2, 3):
        jitted(np.ones(shape))
        sizes.append(jitted._cache_size())
    jitted.clear_cache()
    return [*sizes, jitted._cache_size(), jitted(np.ones(1)), jitted._cache_size()]


def failure(run: Callable[[], Any]) -> tuple[str, str]:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - compared, whatever it is
        run()
    return caught.type.__name__, str(caught.value)


def disabled(jit: Callable[..., Any]) -> Any:
    jitted = jit(lambda x: type(x).__name__ == "ArrayImpl" or float(x))
    with jax.disable_jit():
        return jitted(np.float32(2))


def attribute_set(jitted: Any) -> tuple[Any, ...]:
    jitted.note = "mine"
    jitted.__name__ = "renamed"
    return jitted.note, jitted.__name__, vars(jitted)["note"]


def weakref_works(jitted: Any) -> tuple[bool, bool]:
    reference = weakref.ref(jitted)
    alive = reference() is jitted
    del jitted
    return alive, reference() is None


def without_addresses(text: str) -> str:
    import re

    return re.sub(r"0x[0-9a-f]+", "0x", text)


def pickled(jit: Callable[..., Any]) -> Any:
    # As with @jax.jit at the top of a module: the name is the jitted function.
    jitted = globals()["body"] = jit(body_itself)
    try:
        return pickle.loads(pickle.dumps(jitted))(3.0)  # noqa: S301 - our own
    except Exception as error:  # noqa: BLE001 - compared
        return type(error).__name__
    finally:
        globals()["body"] = body_itself


def comparable(result: Any) -> Any:
    return jax.tree_util.tree_map(
        lambda leaf: leaf.tolist() if hasattr(leaf, "tolist") else leaf, result
    )


PARTIAL = functools.partial(body, n=3)
EVALUATES_STATIC = "PjitFunction" in jax.eval_shape.__code__.co_names

CASES: dict[str, Callable[[Callable[..., Any]], Any]] = {
    "call": lambda jit: jit(body)(3.0),
    "keywords": lambda jit: jit(body, static_argnames="n")(x=3.0, n=4),
    "dunder call": lambda jit: jit(body).__call__(3.0),
    "partial": lambda jit: functools.partial(jit(body), 3.0)(),
    "jit of partial": lambda jit: jit(functools.partial(body, n=4))(3.0),
    "map": lambda jit: list(map(jit(body), [1.0, 2.0])),
    "vmap": lambda jit: jax.vmap(jit(body))(np.ones(3)),
    "grad": lambda jit: jax.grad(jit(body))(3.0),
    "value and grad": lambda jit: jax.value_and_grad(jit(lambda x: x**3))(3.0),
    "jvp": lambda jit: jax.jvp(jit(body), (3.0,), (1.0,)),
    "linearize": lambda jit: jax.linearize(jit(jnp.sin), 1.0)[1](1.0),
    "hessian": lambda jit: jax.hessian(jit(lambda x: x**3))(3.0),
    "nested": lambda jit: jit(lambda x: jit(body)(x) + 1)(3.0),
    "jit of jitted": lambda jit: jit(jit(body))(3.0),
    "scan": lambda jit: jax.lax.scan(jit(lambda c, x: (c + x, c)), 0.0, np.arange(4.0)),
    "while": lambda jit: jax.lax.while_loop(
        jit(lambda c: c < 5), jit(lambda c: c + 1), 0
    ),
    "cond": lambda jit: jax.lax.cond(np.True_, jit(jnp.sin), jit(jnp.cos), 1.0),
    "map over rows": lambda jit: jax.lax.map(jit(body), np.ones(3)),
    "checkpoint": lambda jit: jax.grad(jax.checkpoint(jit(jnp.sin)))(1.0),
    "jit of checkpoint": lambda jit: jax.grad(jit(jax.checkpoint(jnp.sin)))(1.0),
    "custom rules": custom_rules,
    "shard_map": sharded,
    "export": exported,
    "ahead of time": ahead_of_time,
    "eval_shape": lambda jit: jax.eval_shape(jit(body), np.ones(3)),
    "eval_shape static": lambda jit: (
        jax.eval_shape(
            jit(lambda n, x: x.reshape(n, -1), static_argnums=0), 2, np.ones(4)
        )
        if EVALUATES_STATIC
        else None
    ),
    "eval_shape of plain": lambda _: jax.eval_shape(body, np.ones(3)),
    "make_jaxpr": lambda jit: str(jax.make_jaxpr(jit(body))(np.ones(3))),
    "make_jaxpr static": lambda jit: str(
        jax.make_jaxpr(jit(body, static_argnums=1), static_argnums=1)(np.ones(3), 2)
    ),
    "closure_convert": lambda jit: jax.closure_convert(jit(jnp.sin), 1.0)[0](1.0),
    "donated": lambda jit: jit(body, donate_argnums=0)(jnp.ones(3)),
    "pure_callback": lambda jit: jit(
        lambda x: jax.pure_callback(
            lambda y: np.asarray(y) + 1, jax.ShapeDtypeStruct((), np.float32), x
        )
    )(np.float32(1)),
    "disabled": disabled,
    "methods": method_of,
    "bound": lambda jit: Model(jit).bound(1.0),
    "caches": caches,
    "attributes": lambda jit: attributes_of(jit(body)),
    "attributes of partial": lambda jit: attributes_of(jit(PARTIAL)),
    "attributes set": lambda jit: attribute_set(jit(body)),
    "signature": lambda jit: str(inspect.signature(jit(body))),
    "unwrap": lambda jit: inspect.unwrap(jit(body)) is body,
    "wrapped": lambda jit: isinstance(jit(body), jax.stages.Wrapped),
    "callable": lambda jit: callable(jit(body)),
    "iterable": lambda jit: np.iterable(jit(body)),
    "coroutine": lambda jit: inspect.iscoroutinefunction(jit(body)),
    "repr": lambda jit: without_addresses(repr(jit(body))),
    "str": lambda jit: without_addresses(str(jit(body))),
    "equality": lambda jit: len(dict.fromkeys([jit(body)] * 2, 1)),
    "weakref": lambda jit: weakref_works(jit(body)),
    "leaf": lambda jit: jax.tree_util.tree_structure(jit(body)),
    "copy": lambda jit: copy.copy(jit(body))(3.0),
    "deepcopy": lambda jit: copy.deepcopy(jit(body))(3.0),
    "pickle": pickled,
    "state": lambda jit: jit(body).__getstate__()["function_name"],
    "dir": lambda jit: dir(jit(body)),
    "not callable": lambda jit: failure(lambda: jit(3)),
    "wrong arguments": lambda jit: failure(jit(body)),
    "wrong type": lambda jit: failure(lambda: jit(body)("text")),
    "unhashable": lambda jit: failure(lambda: jit(body, static_argnums=1)(1.0, [])),
    "missing attribute": lambda jit: failure(lambda: jit(body).no_such)[0],
    "not an iterator": lambda jit: failure(lambda: iter(jit(body)))[0],
}


@pytest.mark.parametrize("name", CASES)
def test_a_counted_function_behaves_as_a_jitted_one(name: str) -> None:
    """
    Results, errors, attributes and identity are those of JAX's own object.
    """
    case = CASES[name]

    expected = case(jax.jit)
    with instrumented():
        assert isinstance(jax.jit(body), CountedFunction)
        found = case(jax.jit)

    assert comparable(expected) == comparable(found)


# Cases about the making of a function, or about one that is new.
NOT_LATER = {"caches", "weakref", "not callable"}


@pytest.mark.parametrize("name", sorted(CASES.keys() - NOT_LATER))
def test_a_function_counted_once_works_after_uninstrument(name: str) -> None:
    """
    What was jitted during instrumentation works on, and counts nothing any more.
    """
    with instrumented() as agent:
        jit = jax.jit
        made: list[Any] = []

        def remembered(*args: Any, **kwargs: Any) -> Any:
            made.append(jit(*args, **kwargs))
            return made[-1]

        CASES[name](remembered)
    misses = value(agent, MISSES)
    waiting = iter(made)

    def again(*_: Any, **__: Any) -> Any:
        return next(waiting)

    expected, found = CASES[name](PLAIN_JIT), CASES[name](again)

    assert comparable(expected) == comparable(found)
    for jitted in made:
        assert callable(jitted)
    assert value(agent, MISSES) == misses


def test_looking_at_a_counted_function_is_not_a_call(agent: Agent) -> None:
    """
    Inspection, lowering and transformations without execution count nothing.
    """
    jitted = jax.jit(body)

    isinstance(jitted, jax.stages.Wrapped)
    callable(jitted)
    inspect.signature(jitted)
    inspect.unwrap(jitted)
    functools.wraps(jitted)(lambda: None)
    copy.copy(jitted)
    repr(jitted)
    dir(jitted)
    jax.tree_util.tree_leaves(jitted)
    jitted.lower(1.0)
    jax.eval_shape(jitted, 1.0)
    jax.make_jaxpr(jitted)(1.0)
    jax.vmap(jitted)
    jax.grad(jitted)
    jax.checkpoint(jitted)
    functools.partial(jitted, 1.0)
    jax.jit(jitted)
    for name in ("lower", "trace", "__wrapped__", "__name__", "no_such"):
        hasattr(jitted, name)

    assert value(agent, CALLS) == value(agent, HITS) == 0


def test_a_pmapped_function_looks_like_the_original(agent: Agent) -> None:
    """
    Name, module and documentation of a pmapped function are the user's.
    """
    plain, counted = PLAIN_PMAP(body), jax.pmap(body)

    assert attributes_of(plain) == attributes_of(counted)
    assert str(inspect.signature(plain)) == str(inspect.signature(counted))
    expected, found = plain(np.ones((1, 2))), counted(np.ones((1, 2)))
    assert expected.tolist() == found.tolist()


def test_a_pmapped_function_keeps_its_counts_when_its_twin_goes(agent: Agent) -> None:
    """
    Two pmaps of one function: dropping one does not turn misses of the other to hits.
    """

    def twin(x: Any) -> Any:
        return x + 1

    kept, dropped = jax.pmap(twin), jax.pmap(twin)
    dropped(np.ones((1, 2)))
    del dropped
    gc.collect()
    kept(np.ones((1, 3)))
    kept(np.ones((1, 3)))

    assert value(agent, CALLS) == 3
    assert value(agent, MISSES, function=f"{__name__}.{twin.__qualname__}") == 2
    assert value(agent, HITS) == 1


def test_warnings_of_jit_name_the_line_of_the_user() -> None:
    """
    A deprecation is attributed to the caller of `jax.jit`, as without jaxmon.
    """
    device = jax.devices()[0]
    with pytest.warns(DeprecationWarning, match="device") as plain:
        jax.jit(body, device=device)
    with (
        instrumented(),
        pytest.warns(DeprecationWarning, match="device") as counted,
    ):
        jax.jit(body, device=device)

    assert [one.filename for one in plain] == [one.filename for one in counted]


def test_errors_of_jit_itself_have_the_same_traceback() -> None:
    """
    `jax.jit` of something else than a function fails with JAX's frames only.
    """
    plain = frames_of_not_jitted()
    with instrumented():
        counted = frames_of_not_jitted()

    assert plain == counted


def frames_of_not_jitted() -> list[str]:
    with pytest.raises(TypeError) as caught:
        jax.jit(3)
    return [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
