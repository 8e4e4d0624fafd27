"""Executables that report little, wait long, or are gone."""

import gc
import threading
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from jaxmon.agent.compiles.programs import Programs, read_hlo
from jaxmon.agent.context import Context, context_of
from jaxmon.agent.flops.part import UtilizationPart
from jaxmon.agent.jaxlink import executables
from jaxmon.agent.jaxlink.executables import facts
from jaxmon.agent.loaded_programs import LoadedPrograms
from jaxmon.facts.record import encoded
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
        programs.take(shared.table.named("f"), gone)
        programs.take(shared.table.named("g"), Executable(cost={}))
        until(lambda: "g" in programs.snapshot(), "the second program")
    finally:
        programs.stop()
        shared.scheduler.stop()

    snapshot = encoded(programs.snapshot()["f"])
    assert snapshot.pop("finished") > 0
    assert snapshot == {"programs": 0, "fingerprint": None}
    assert shared.guard.failures() == {}


def test_executables_that_find_no_place_are_refused_and_the_rest_let_go() -> None:
    """A queue that is full refuses; one that is stopped holds nothing back."""
    shared = context()
    programs = Programs(shared, LoadedPrograms(shared.jax), UtilizationPart(shared))
    programs.start()
    function, gate = shared.table.named("f"), threading.Event()
    kept = []
    try:
        programs.take(function, Executable(gate=gate))
        for _ in range(100):
            executable = Executable()
            kept.append(weakref.ref(executable))
            programs.take(function, executable)
        del executable
        assert 30 <= programs.dropped()["program"] < 100
        assert sum(ref() is not None for ref in kept) <= 64
    finally:
        threading.Timer(0.05, gate.set).start()
        programs.stop()
        shared.scheduler.stop()

    gc.collect()
    assert [ref() for ref in kept if ref() is not None] == []
