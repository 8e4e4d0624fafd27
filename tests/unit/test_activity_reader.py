"""What a thread does, from the functions on its stack."""

import asyncio
import multiprocessing
import queue
import sys
import threading
import time
import time as clock
from asyncio.base_events import BaseEventLoop
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from multiprocessing.pool import ThreadPool
from pathlib import Path
from time import sleep
from types import FunctionType, ModuleType
from typing import Any

import jax
import pytest
from jax._src import pjit, xla_bridge
from jax._src.interpreters import pxla

from jaxmon.agent.jaxlink.activity import (
    IDLE,
    ITEM,
    JOIN,
    PYTHON,
    STARTUP,
    ActivityReader,
    Doing,
)
from jaxmon.agent.jaxlink.call_sites import DEVICE, EAGER, CallSites
from jaxmon.agent.jaxlink.other_threads import Position, read_stacks, repeatedly
from jaxmon.host.sources import display_path
from tests.helpers.processes import until
from tests.helpers.stacks import (
    LIBRARY,
    MACHINERY,
    OF_JAX,
    PROGRAM,
    module_of,
    read,
)


def called(sites: CallSites, state: str) -> Position:
    """Return where the caller is, which calls a jitted function there."""
    frame = sys._getframe(1)
    sites.add(frame, state, "__main__.step")
    return Position(frame.f_code, frame.f_lasti, globals())


@pytest.mark.parametrize(
    ("state", "expected"), [(DEVICE, "__main__.step"), (EAGER, "")]
)
def test_what_runs_for_the_first_time_has_a_name(state: str, expected: str) -> None:
    """A program just compiled is run from Python, but by the call of its function."""
    sites = CallSites()
    caller = called(sites, state)
    run = pxla.ExecuteReplicated.__call__
    of_jax = [getattr(run, "__wrapped__", run), pjit._pjit_call_impl_python]
    codes = (Position(one.__code__, 0, {}) for one in of_jax)
    found = read(*codes, caller, sites=sites)

    assert (found.state, found.function) == (DEVICE, expected)
    assert found.line.function == caller.code.co_name


def test_what_is_traced_is_a_function_that_is_called() -> None:
    """With the line of its own loop, not that of a loop which calls it."""
    sites, found, names = CallSites(), [], ["__main__.step"]
    reader = ActivityReader(jax, sites)

    def layer(x: Any) -> Any:
        frame = sys._getframe(1)
        while (
            frame.f_code
            is not test_what_is_traced_is_a_function_that_is_called.__code__
        ):
            assert frame.f_back is not None
            frame = frame.f_back
        for name in names:
            sites.add(frame, DEVICE, name)
        ident = threading.get_ident()
        (stack,) = repeatedly(partial(read_stacks, lambda _: [ident])).values()
        found.append(reader.read(stack))
        return x + 1

    def step(x: Any) -> Any:
        for _ in range(2):
            x = layer(x)
        return layer(x)

    for _ in range(1):
        jax.jit(step)(1.0)

    assert {(of.state, of.function) for of in found} == {("compile", "__main__.step")}
    names.clear()
    reader = ActivityReader(jax, CallSites())
    jax.jit(lambda x: step(x * 2)).lower(1.0)
    ahead = {of.function.rpartition("<locals>.")[2] for of in found[3:]}
    assert ahead == {"<lambda>"}  # that of the code, since no call is known
    first = step.__code__.co_firstlineno
    assert [of.caller.line for of in found[:3]] == [first + 2, first + 2, 0]


@pytest.mark.parametrize(
    ("file", "name"), [(queue.__file__, ""), ("/srv/model.py", "model.run")]
)
def test_what_jax_itself_uses_while_it_traces_is_not_what_is_traced(file, name):
    """It has begun, and has not called the function yet."""
    traces = code_of(pjit.__file__, "trace_to_jaxpr_dynamic")
    inner = code_of(file)._replace(names={"__name__": "model"})

    assert read(inner, traces, code_of("/srv/train.py")).function == name


_LIBRARY = """
def apply(model, x):
    jax.eval_shape(partial(see), x)
    return model(x)
"""


def test_operations_outside_of_jit_are_those_of_a_call_in_a_loop() -> None:
    """What a library traces for shapes is a part of that; what is jitted compiles."""
    sites, found = CallSites(), list[Doing]()
    reader, here = ActivityReader(jax, sites), threading.get_ident()

    def see(x: Any) -> Any:
        (stack,) = repeatedly(partial(read_stacks, lambda _: [here])).values()
        calls = next(n for n, at in enumerate(stack) if at.code is see.__code__)
        if stack[calls + 1].code.co_filename == __file__:  # no function of JAX
            sites.add(sys._getframe(1), EAGER)
            calls += 1
        found.append(reader.read(stack[calls:]))
        return x

    def layers(x: Any) -> Any:
        for _ in range(1):
            x = see(x)
        return x

    def layer(x: Any) -> Any:
        return see(x)

    library: dict[str, Any] = {"jax": jax, "see": see, "partial": partial}
    exec(compile(_LIBRARY, "/opt/lib/site-packages/flax/scope.py", "exec"), library)  # noqa: S102 - ours
    apply, runs = library["apply"], list[tuple[list[str], set[int]]]()
    first = sys._getframe().f_lineno
    for run in (
        lambda: [apply(layers, 1.0) for _ in range(1)],
        lambda: [layer(1.0) for _ in range(1)],
        lambda: [layers(1.0) for _ in range(1)],
        lambda: [jax.jit(partial(apply, layer))(1.0) for _ in range(1)],
        lambda: [jax.eval_shape(partial(see), 1.0) for _ in range(1)],
    ):
        found.clear()
        run()
        lines = {of.caller.line - first for of in found if of.caller.line}
        runs.append(([of.state for of in found], lines))

    assert runs[:3] == [([EAGER, EAGER], {2}), ([EAGER], {3}), ([EAGER], set())]
    assert [states for states, _ in runs[3:]] == [["compile", "compile"], ["compile"]]


def test_a_program_compiled_ahead_of_time_is_no_operation() -> None:
    """It is called in Python, too, if it has effects or the call is no fast one."""
    sites = CallSites()
    caller = called(sites, DEVICE)
    of_jax = [jax.stages.Compiled.call, jax.stages.Compiled.__call__]

    for first in (of_jax, of_jax[1:]):
        codes = (Position(one.__code__, 0, {}) for one in first)
        assert read(*codes, caller, sites=sites).state == DEVICE


def waits_as(state: str, wait: Callable[[], Any], end: Callable[[], Any]) -> Doing:
    """Wait until a thread in *wait* is seen to do *state*; *end* ends that."""
    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    reader = ActivityReader(jax, CallSites())

    found: list[Doing] = []

    def seen() -> bool:
        stacks = repeatedly(partial(read_stacks, lambda _: [thread.ident or 0]))
        found[:] = map(reader.read, stacks.values())
        return [doing.state for doing in found] == [state]

    until(seen, f"a thread that is {state}")
    end()
    thread.join(10.0)
    return found[0]


def test_a_wait_for_items_of_a_pool_is_known() -> None:
    """Of one whose items come one after the other."""
    ended = threading.Event()
    with ThreadPool(1) as pool:
        waits_as(
            ITEM, lambda: next(pool.imap(lambda _: ended.wait(60), [1])), ended.set
        )


def sleep_imported_here() -> None:
    from time import sleep

    sleep(0.01)


@pytest.mark.parametrize(
    ("pause", "sleeps"),
    [
        (lambda: time.sleep(0.01), True),
        (lambda: sleep(0.01), True),
        (lambda: clock.sleep(0.01), True),
        (sleep_imported_here, True),
        (lambda: threading.Event().wait(0.01), False),
    ],
    ids=["time.sleep", "sleep", "clock.sleep", "imported", "event"],
)
def test_a_thread_that_sleeps_is_known(
    pause: Callable[[], object], *, sleeps: bool
) -> None:
    """By what its line calls, however that is named; an event is no sleep."""
    ended = threading.Event()

    def wait() -> None:
        while not ended.is_set():
            pause()

    thread, reader = threading.Thread(target=wait), ActivityReader(jax, CallSites())
    thread.start()

    def seen() -> bool:
        stacks = repeatedly(partial(read_stacks, lambda _: [thread.ident or 0]))
        doing = [reader.read(stack) for stack in stacks.values()]
        waits = any(of.parked or of.sleeps for of in doing)
        return waits and [of.sleeps for of in doing] == [sleeps]

    try:
        until(seen, "a thread that waits")
    finally:
        ended.set()
        thread.join(10.0)


@pytest.mark.parametrize("timeout", [None, 60.0])
@pytest.mark.parametrize("kind", [queue.Queue, multiprocessing.Queue])
def test_a_wait_for_an_item_of_a_queue_is_known(kind, timeout):
    """Also for one of another process, whose pipe is read some calls further down."""
    items = kind()

    waits_as(ITEM, lambda: items.get(timeout=timeout), lambda: items.put(1))


def answer(items: Any, timeout: float | None) -> None:
    """Answer the next request of *items*."""
    items.get(timeout=timeout).set_result(1)


def take(items: Any, timeout: float | None) -> None:
    """Take the next batch of *items*."""
    items.get(timeout=timeout)


@pytest.mark.parametrize(
    ("wait", "timeout", "answers"),
    [(answer, None, True), (answer, 60.0, False), (take, None, False)],
)
def test_who_answers_requests_waits_for_them(wait, timeout, answers):
    """Not who waits for more of a batch, up to a limit, or for data."""
    items = queue.Queue[Any]()
    wait, end = partial(wait, items, timeout), partial(items.put, Future())

    assert waits_as(ITEM, wait, end).answers is answers


@pytest.mark.parametrize(
    ("function", "state"), [("__getitem__", "data_wait"), ("__call__", PYTHON)]
)
def test_who_indexes_a_data_set_waits_for_data(function: str, state: str) -> None:
    """In a function that calls jitted ones, as who asks an iterator does."""
    sites = CallSites()
    driver = called(sites, DEVICE)
    loads, reads = code_of("/srv/data.py", function), code_of("/srv/data.py", "read")

    assert read(reads, loads, driver, sites=sites).state == state
    assert read(reads, loads, code_of("/srv/train.py")).state == PYTHON
    archive = code_of(jax.__file__.replace("/jax/", "/numpy/"), function)
    assert read(reads, archive, driver, sites=sites).state == PYTHON


def test_a_wait_for_connections_is_none_for_an_item() -> None:
    """A server that has nothing to do is idle."""
    reader, writer = multiprocessing.Pipe(duplex=False)

    waits_as(IDLE, lambda: reader.poll(60.0), lambda: writer.send(1))


JOINS = Position(threading.Thread.join.__code__, 0, {})
ORBAX = module_of("/x/site-packages/orbax/checkpoint/checkpoint_manager.py")
STANDARD = Position(ThreadPoolExecutor.shutdown.__code__, 0, {})


@pytest.mark.parametrize(
    ("callers", "expected"),
    [([], JOIN), ([STANDARD], JOIN), ([ORBAX], PYTHON), ([ORBAX, STANDARD], PYTHON)],
)
def test_a_library_waits_for_its_own_thread(callers, expected):
    """A checkpoint is awaited, whereas a program may join threads that serve."""
    found = read(JOINS, *callers, PROGRAM)

    assert (found.state, found.line.file) == (expected, "/app/train.py")


@pytest.mark.parametrize("below", [[], [MACHINERY, LIBRARY], [LIBRARY]])
def test_devices_are_initialised_by_the_first_operation(below: list[Position]) -> None:
    """It is neither compiled nor outside of jit for so long."""
    for first in (xla_bridge._init_backend, xla_bridge.discover_pjrt_plugins):
        of_jax = [first, pjit._pjit_call_impl_python]
        codes = (Position(one.__code__, 0, {}) for one in of_jax)
        found = read(*below, *codes, PROGRAM)

        assert (found.state, found.line.file) == (STARTUP, "/app/train.py")
        assert not found.function


@pytest.mark.parametrize("loop", [vars(BaseEventLoop)["_run_once"], asyncio.Runner.run])
def test_a_handler_is_called_by_its_event_loop(loop: FunctionType) -> None:
    """Of asyncio or, without functions of its own, uvloop."""
    other = module_of("/app/runners.py")

    at = Position(loop.__code__, 0, {})
    assert read(OF_JAX, PROGRAM, at).event_loop
    assert not read(OF_JAX, PROGRAM, other).event_loop
    assert [read(one).state for one in (at, other)] == [IDLE, PYTHON]


def code_of(file: str, function: str = "run") -> Position:
    """Return where a function of *file* is."""
    names: dict[str, Any] = {}
    exec(compile(f"def {function}():\n    pass", file, "exec"), names)  # noqa: S102 - our own
    return Position(names[function].__code__, 0, {})


class Lazy(ModuleType):
    """A module that is loaded by its first use, as by `importlib.util.LazyLoader`."""

    def __getattribute__(self, name: str) -> Any:
        pytest.fail(f"it was used: {name}")


def test_a_place_is_a_line_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """The nearest caller: not a library that draws, nor what Python has generated."""
    packages = "/opt/lib/python3.11/site-packages"
    program, stdlib = code_of("/srv/train.py"), code_of(queue.__file__)
    trainer = code_of(f"{packages}/trainer/loop.py")
    painter = code_of(f"{packages}/painter/units.py")
    generated = code_of("<string>", "__init__")
    monkeypatch.setitem(sys.modules, "trainer", ModuleType("trainer"))
    monkeypatch.setitem(sys.modules, "painter", Lazy("painter"))
    loop = ModuleType("trainer.loop")
    monkeypatch.setattr(loop, "jax", jax, raising=False)
    monkeypatch.setitem(sys.modules, "trainer.loop", loop)

    assert read(painter, generated, program).line.file == "/srv/train.py"
    assert read(trainer, program).line.file == f"{packages}/trainer/loop.py"
    assert read(painter, trainer).line.file == f"{packages}/trainer/loop.py"
    assert read(generated).line.file == "<string>"  # of `python -c`, there is no other
    assert not read(stdlib).line.file
    assert not read(painter).line.file


def test_collections_while_jax_compiles_are_compile_time() -> None:
    """Elsewhere they are of the line that they interrupt."""
    of_jax = str(Path(jax.__file__).with_name("_src") / "some.py")
    collects, traces = code_of(of_jax, "_xla_gc_callback"), code_of(of_jax, "run")
    lowers, program = code_of(of_jax, "trace_to_jaxpr"), code_of("/srv/train.py")

    assert read(collects, traces, lowers, program).state == "compile"
    assert read(collects, traces, program).state == "gc"


def test_what_only_asks_jax_what_something_is_runs_no_operation() -> None:
    """A library does so for each of its objects, as flax.nnx."""
    source = Path(jax.__file__).with_name("_src")
    asks = code_of(str(source / "core.py"), "typeof")
    looks = code_of(str(source / "util.py"), "wrapper")
    binds = code_of(str(source / "core.py"), "bind")
    program = code_of("/srv/train.py")

    assert read(looks, asks, program).state == PYTHON
    assert read(looks, binds, program).state == EAGER


@pytest.mark.parametrize(
    ("site", "above", "expected"),
    [
        (DEVICE, [], ("fetch", "__main__.step")),
        (EAGER, [], (EAGER, "")),
        (DEVICE, ["deferring_binary_op"], (EAGER, "")),
    ],
)
def test_what_jax_checks_behind_a_call_is_that_calls(site, above, expected) -> None:
    """With `jax_debug_nans`; an operation outside of jit stays one."""
    sites = CallSites()
    caller = called(sites, site)
    of_jax = str(Path(jax.__file__).with_name("_src") / "api.py")
    names = "_check_special", "_nan_check_posthook", "reraise_with_filtered_traceback"
    stack = [code_of(of_jax, name) for name in (*names, *above)]
    found = read(*stack, caller, sites=sites)

    assert (found.state, found.function) == expected


def test_a_call_whose_keys_jax_checks_is_not_compiled() -> None:
    """With `jax_debug_key_reuse`, each call takes the way of a first one."""
    sites, source = CallSites(), Path(jax.__file__).parent
    caller = called(sites, DEVICE)
    keys = str(source / "experimental" / "key_reuse" / "_core.py")
    checks = code_of(keys, "call_impl_with_key_reuse_checks")
    calls, misses = (
        code_of(str(source / "_src" / "pjit.py"), name)
        for name in ("_pjit_call_impl", "cache_miss")
    )

    found = read(calls, checks, misses, caller, sites=sites)
    assert (found.state, found.function) == (DEVICE, "__main__.step")
    assert read(calls, misses, caller, sites=sites).state == "compile"


def test_a_running_program_waits_for_what_jax_does_for_its_callbacks() -> None:
    """On a CPU, XLA calls back on the thread that has called the program."""
    source = Path(jax.__file__).with_name("_src")
    puts = code_of(str(source / "api.py"), "device_put")
    calls = code_of(str(source / "callback.py"), "io_callback_impl")
    wraps = code_of(str(source / "callback.py"), "_wrapped_callback")
    callback, program = code_of("/srv/progress.py"), code_of("/srv/train.py")

    assert read(puts, calls, wraps, program).state == DEVICE
    assert read(callback, calls, wraps, program).state == PYTHON
    assert read(puts, calls, program).state == "transfer"


def test_what_we_do_at_the_exit_is_no_time_of_the_program() -> None:
    """Not so where a library calls us."""
    report = Position(display_path.__code__, 0, {})
    stdlib, program = code_of(queue.__file__), code_of("/srv/train.py")
    library = code_of("/opt/lib/python3.11/site-packages/starlette/routing.py")

    assert read(stdlib, report).ours
    assert not read(report, library).ours
    assert not read(report, program).ours
    assert not read(stdlib).ours
