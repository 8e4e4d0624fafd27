"""Executables that report little, wait long, or are gone."""

import gc
import threading
import weakref
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmon.agent.compiles.hlo import read_hlo
from jaxmon.agent.compiles.programs import Programs
from jaxmon.agent.context import Context, context_of
from jaxmon.agent.flops.part import UtilizationPart
from jaxmon.agent.functions import CompilePhases
from jaxmon.agent.jaxlink import equations, executables
from jaxmon.agent.jaxlink.contents import folded
from jaxmon.agent.jaxlink.equations import unrolled
from jaxmon.agent.jaxlink.executables import facts
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder
from jaxmon.agent.loaded_programs import LoadedPrograms
from jaxmon.facts.record import encoded
from jaxmon.host.sources import display_path
from jaxmon.settings import Settings
from tests.helpers.processes import until


TEXT = """HloModule jit_f

%fused (p: f32[3]) -> f32[3] {
  %p = f32[3]{0} parameter(0)
  ROOT %add = f32[3]{0} add(%p, %p)
}

ENTRY %main (x: f32[3]) -> f32[3] {
  %x = f32[3]{0} parameter(0)
  ROOT %fusion.1 = f32[3]{0} fusion(%x), kind=kLoop, calls=%fused
}
"""


PHASES = CompilePhases(None, None, 0.1, loaded=False)


class Executable:
    """An executable as XLA gives it, at the far edge: no JAX makes these on purpose."""

    def __init__(
        self,
        *,
        cost: Any = None,
        memory: Any = None,
        text: str = TEXT,
        gate: threading.Event | None = None,
    ) -> None:
        self._cost, self._memory, self._text, self._gate = cost, memory, text, gate

    def hlo_modules(self) -> list[Any]:
        if self._gate is not None:
            self._gate.wait(90)
        return [SimpleNamespace(to_string=lambda *_: self._text)]

    def cost_analysis(self) -> Any:
        if isinstance(self._cost, Exception):
            raise self._cost
        return self._cost

    def get_compiled_memory_stats(self) -> Any:
        if isinstance(self._memory, Exception):
            raise self._memory
        return self._memory


class Deleted(Executable):
    def hlo_modules(self) -> list[Any]:
        msg = "the executable was deleted"
        raise RuntimeError(msg)


class Options:
    print_metadata = True
    print_backend_config = True


def context(*, home: str | None = "hlo") -> Context:
    """Return a context whose JAX has what prints HLO where *home* says."""
    client = SimpleNamespace()
    if home is not None:
        setattr(client, home, SimpleNamespace(HloPrintOptions=Options))
    jax = SimpleNamespace(_src=SimpleNamespace(lib=SimpleNamespace(xla_client=client)))
    return context_of(jax, Settings(max_functions=100))


@pytest.mark.parametrize(
    ("cost", "found"),
    [
        (None, {}),
        ([], {}),
        ({}, {}),
        ({"flops": -1.0, "bytes accessed": float("nan")}, {}),
        (
            {"flops": 0.0, "bytes accessed": 12.0},
            {"flops": 0.0, "accessed_bytes": 12.0},
        ),
        ([{"flops": 3.0}], {"flops": 3.0}),
        (RuntimeError("UNIMPLEMENTED"), {}),
        (NotImplementedError("not here"), {}),
    ],
)
def test_costs_that_are_not_known_are_left_out(cost, found):
    """XLA gives a list, a dictionary, nothing, less than nothing, or raises."""
    executable = Executable(cost=cost, memory=RuntimeError("UNIMPLEMENTED"))

    assert facts(executable) == found


def test_sizes_that_are_not_known_are_left_out() -> None:
    """No argument is a size; no code, and a negative size, is none."""
    memory = SimpleNamespace(
        argument_size_in_bytes=0,
        output_size_in_bytes=-1,
        temp_size_in_bytes=8,
        generated_code_size_in_bytes=0,
    )

    assert facts(Executable(memory=memory)) == {
        "argument_bytes": 0,
        "temporary_bytes": 8,
    }


def test_a_fingerprint_needs_a_way_to_leave_source_lines_out() -> None:
    """Without it there is none, for it would differ between hosts; counts remain."""
    texts = list(executables.texts(Executable(), None))

    assert read_hlo(texts, comparable=False)[:3] == (None, 4, 1)
    assert read_hlo(texts, comparable=True).fingerprint is not None
    for home in ("hlo", "_xla"):
        options = executables.printing(context(home=home).jax)
        assert not options.print_metadata
        assert not options.print_backend_config
    assert executables.printing(context(home=None).jax) is None


def test_a_deleted_executable_costs_its_own_figures_only() -> None:
    """What cannot be read is left out, and is no failure of jaxmon."""
    shared = context()
    programs = Programs(shared, LoadedPrograms(shared.jax), UtilizationPart(shared))
    programs.start()
    try:
        gone = Deleted(cost=RuntimeError(), memory=RuntimeError())
        programs.take(shared.table.named("f"), gone, PHASES)
        programs.take(shared.table.named("g"), Executable(cost={}), PHASES)
        until(lambda: "g" in programs.snapshot(), "the second program")
    finally:
        programs.stop()
        shared.scheduler.stop()

    snapshot = encoded(programs.snapshot()["f"])
    assert snapshot.pop("finished") > 0
    assert snapshot == {"programs": 0, "read": 0, "fingerprint": None}
    assert shared.guard.failures() == {}


def test_executables_that_find_no_place_are_refused_and_the_rest_let_go() -> None:
    """A queue that is full refuses; one that is stopped holds nothing back."""
    shared = context()
    programs = Programs(shared, LoadedPrograms(shared.jax), UtilizationPart(shared))
    programs.start()
    function, gate = shared.table.named("f"), threading.Event()
    kept = []
    try:
        programs.take(function, Executable(gate=gate), PHASES)
        for _ in range(100):
            executable = Executable()
            kept.append(weakref.ref(executable))
            programs.take(function, executable, PHASES)
        del executable
        assert 30 <= programs.dropped()["program"] < 100
        assert sum(ref() is not None for ref in kept) <= 64
    finally:
        threading.Timer(0.05, gate.set).start()
        programs.stop()
        shared.scheduler.stop()

    gc.collect()
    assert [ref() for ref in kept if ref() is not None] == []


def fit(w):
    return jnp.sum(jnp.tanh(w @ w) ** 2 / (1 + jnp.exp(w)))


def descend(w):
    for _ in range(15):
        w = w - 0.1 * jax.grad(fit)(w)  # the line
    return fit(w)


def scanned(w):
    def body(w, _):
        return w - 0.1 * jax.grad(fit)(w), None

    return fit(jax.lax.scan(body, w, None, 15)[0])


def mapped(w):
    return sum(jax.tree.leaves(jax.tree.map(lambda leaf: fit(leaf + w), [w] * 20)))


def growing(w):
    found = w[:1]
    for _ in range(60):
        found = jnp.concatenate([found, found[-1:] * 2])
    return found.sum()


def loop_in(fun):
    x = jnp.eye(3)
    for _ in range(2):  # around the function, it is no part of the program
        jaxpr = jax.make_jaxpr(jax.value_and_grad(fun))(x).jaxpr
    code = fun.__code__
    place = f"{display_path(code.co_filename)}:{code.co_firstlineno}"
    return len(jaxpr.eqns), unrolled(jaxpr, place, SourceLineFinder(jax))


def test_a_loop_of_python_is_found_in_a_program():
    """
    The line that calls its body, how often, and how much of the program it is, also of
    a gradient of a gradient; what is mapped over a tree, or grows, is no such loop.
    """
    _, found = loop_in(descend)

    assert found is not None
    line = descend.__code__.co_firstlineno + 2
    assert found.where.endswith(f"test_programs.py:{line}")
    assert found.times == 15
    assert found.ratio > 0.9
    assert loop_in(scanned)[1] is None
    size, tree = loop_in(mapped)
    assert (size > 200, tree) == (True, None)
    size, grown = loop_in(growing)
    assert size > 120
    assert grown is None or grown.ratio < 0.5


def layers(w, passes=5):
    for _ in range(passes):
        w = jnp.tanh(w @ w)
    return w


def repeated(w):
    for _ in range(20):
        w = w - layers(w)  # the outer line
    return w.sum()


def alternating(w):
    for _ in range(20):
        w = layers(w)
    return w.sum()


def second(fun):
    def derived(w):
        return jax.jvp(lambda w: jax.jvp(fun, (w,), (w,))[1], (w,), (w,))[1]

    return derived


def test_derivatives_of_a_pass_are_no_passes():
    """Few passes, derived often, are no large loop; of many, all are counted once."""
    code = layers.__code__
    place = f"{display_path(code.co_filename)}:{code.co_firstlineno}"

    def found(passes, derive):
        fun = second(second(lambda w: layers(w, passes).sum()))
        jaxpr = jax.make_jaxpr(derive(fun))(jnp.eye(3)).jaxpr
        return unrolled(jaxpr, place, SourceLineFinder(jax))

    for derive in (lambda fun: fun, jax.grad):
        assert found(5, derive) is None
    loop = found(30, lambda fun: fun)
    assert loop is not None
    assert loop.times == 30


def test_a_loop_that_calls_a_loop_is_the_one_to_change():
    """The outer line and its passes; both lines if all is in both loops."""
    _, outer = loop_in(repeated)
    _, both = loop_in(alternating)

    assert outer is not None
    assert both is not None
    line = repeated.__code__.co_firstlineno + 2
    inside = layers.__code__.co_firstlineno + 2
    assert outer.where.endswith(f"test_programs.py:{line}")
    assert (outer.times, outer.inner) == (20, "")
    assert both.inner.endswith(f"test_programs.py:{inside}")
    assert both.times == 100


def adding(w):
    for _ in range(150):
        w = w + jnp.sin(w) * 0.1
    return w.sum()


def test_all_passes_of_a_large_program_are_counted(monkeypatch):
    """Also those behind the operations that its loops are looked for in."""
    monkeypatch.setattr(equations, "_MOST_OUTERMOST", 400)
    size, found = loop_in(adding)

    assert size > 400
    assert found is not None
    assert (found.times, found.operations) == (150, size)


TABLE = np.ones((150, 150), np.float32)


def sums(table, rows):
    return jnp.cumsum(jnp.asarray(table), 0)[rows]  # the line of sums


def test_operations_on_constants_are_found_in_a_program():
    """
    The line, through functions that JAX traces once, and how much work it is; none if
    the array is an argument, or if XLA has a fast way.
    """
    rows, lines = np.zeros(5, np.int32), SourceLineFinder(jax)

    def found(fun, *given):
        return folded(jax.make_jaxpr(fun)(*given).jaxpr, lines)

    first = found(lambda rows: sums(TABLE, rows) + rows[0], rows)
    again = found(lambda rows: sums(TABLE * 2, jnp.sort(rows)), rows)
    line = sums.__code__.co_firstlineno + 1
    assert first is not None
    assert again is not None
    assert first.where.endswith(f"test_programs.py:{line}")
    assert again.replace(callers=first.callers) == first
    called = found.__code__.co_firstlineno + 3
    assert first.callers[0].endswith(f"test_programs.py:{called}")
    assert (first.operation, first.constant) == ("cumsum", "float32[150,150]")
    assert first.steps == 16 * TABLE.size
    assert found(sums, TABLE, rows) is None
    assert found(lambda rows: jnp.sin(TABLE)[rows] @ TABLE, rows) is None
    assert found(lambda rows: sums(TABLE + rows[0], rows), rows) is None
    # A loop runs a program of its own.
    assert found(lambda n: jax.lax.map(jnp.cumsum, TABLE) * n, 1.0) is None
