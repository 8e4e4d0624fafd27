"""The time of XLA's passes, from traces and from what agents write."""

import json
from pathlib import Path

import pytest

from jaxmon.cli import compiles
from jaxmon.preflight.profile import passes
from jaxmon.preflight.profile.passes import (
    CompileTimes,
    TimedEvent,
    TracedCompile,
    group_of,
    own_times,
)


MILLISECOND = 1_000_000_000


def event(name: str, start: float, end: float) -> TimedEvent:
    """Return an event with times in milliseconds."""
    return TimedEvent(name, int(start * MILLISECOND), int(end * MILLISECOND))


def test_nested_events_are_counted_once() -> None:
    """The own times of events are together what the outermost takes."""
    found = list(
        own_times(
            [
                event("PjRtCpuClient::Compile", 0, 100),
                event("simplification", 10, 40),
                event("simplification (jit_f)", 10, 40),
                event("algsimp", 11, 21),
                event("dce", 21, 22),
                event("fusion", 50, 70),
                event("CpuCompiler::RunBackend", 80, 100),
                event("Inner::Work", 85, 90),
            ]
        )
    )
    by_name = {name: (group, round(seconds, 6)) for name, group, seconds in found}

    assert by_name == {
        "PjRtCpuClient::Compile": ("", 0.03),
        "simplification": ("simplification", 0.0),
        "simplification (jit_f)": ("", 0.019),
        "algsimp": ("simplification", 0.01),
        "dce": ("simplification", 0.001),
        "fusion": ("fusion", 0.02),
        "CpuCompiler::RunBackend": ("code generation", 0.015),
        "Inner::Work": ("code generation", 0.005),
    }
    assert pytest.approx(sum(seconds for *_, seconds in found)) == 0.1


def test_what_autotuning_compiles_is_autotuning() -> None:
    """A candidate goes through passes of its own, which are part of the choice."""
    found = own_times(
        [
            event("gemm-fusion-autotuner", 0, 10),
            event("priority-fusion", 1, 4),
            event("XlaOptimizeLlvmIr", 4, 9),
        ]
    )

    assert {"autotuning"} == {group for _, group, _ in found}


@pytest.mark.parametrize(
    ("name", "group"),
    [
        # Seen in traces of a CPU.
        ("layout-assignment", "layout"),
        ("transpose-folding", "layout"),
        ("copy-insertion", "copy insertion"),
        ("constant_folding", "constant folding"),
        ("cpu_multi_output_fusion", "fusion"),
        ("sharding-remover", "partitioning"),
        ("algsimp", "simplification"),
        ("while-loop-simplifier", "simplification"),
        ("JitCompiler::Compile", "code generation"),
        ("Codegen", "code generation"),
        ("cpu-parallel-task-assigner", "other passes"),
        # From the sources of XLA for GPUs.
        ("gemm-algorithm-picker", "autotuning"),
        ("triton-autotuner", "autotuning"),
        ("spmd-partitioning", "partitioning"),
        ("latency-hiding-scheduler", "scheduling"),
        ("CompileToBackendResult", "code generation"),
        ("HLO passes through layout assignment (jit_f)", ""),
    ],
)
def test_passes_have_groups(name: str, group: str) -> None:
    """A pass is in the first group that its name fits; a pipeline is in none."""
    assert group == group_of(name)


def test_the_outermost_event_is_no_pass() -> None:
    """What a runtime calls XLA in has a name like others."""
    assert group_of("backend_compile", outermost=True) == ""
    assert group_of("PjRtCpuClient::Compile") == ""


def lines(*several: dict[str, object]) -> str:
    """Return lines as an agent writes them."""
    return "".join(f"{json.dumps(line)}\n" for line in several)


def test_compiles_without_an_end_did_not_finish(tmp_path: Path) -> None:
    """A compile that raised, or was killed, has a beginning only."""
    begun = {"function": "f", "internal": False, "untraced": ""}
    ended = {"cut": None, "seconds": 2.0, "xla": 1.0, "loaded": False}
    (tmp_path / "7.jsonl").write_text(
        lines(
            {"marker": "a", **begun},
            {"marker": "a", "phases": {"trace": 0.25, "lower": 0.5}, **ended},
            {"marker": "b", **begun},
        )
    )
    found = passes.read(tmp_path)

    assert found.unfinished == ["f"]
    [program] = found.programs
    assert program.untraced == "XLA reported no passes, as before JAX 0.5"
    assert program.parts == {
        "trace": 0.25,
        "lower": 0.5,
        "not recorded": 1.0,
        "rest": 0.25,
    }


def test_a_loaded_program_has_no_passes(tmp_path: Path) -> None:
    """What comes from the persistent cache is one part of the time."""
    begun = {"function": "f", "internal": False, "untraced": ""}
    ended: dict[str, object] = {
        "cut": None,
        "seconds": 0.3,
        "xla": 0.3,
        "loaded": True,
        "phases": {},
    }
    (tmp_path / "7.jsonl").write_text(
        lines({"marker": "a", **begun}, {"marker": "a", **ended})
    )
    [program] = passes.read(tmp_path).programs

    assert program.parts == {"load": 0.3, "rest": 0.0}
    assert program.untraced == ""


def test_a_cut_line_is_an_error(tmp_path: Path) -> None:
    """The process was killed while it wrote."""
    (tmp_path / "7.jsonl").write_text('{"marker": "a", "fun')

    with pytest.raises(ValueError, match="Unterminated"):
        passes.read(tmp_path)


def test_a_program_that_dies_in_its_first_compile_is_shown() -> None:
    """With what did not finish; or with what did before it."""
    nothing = CompileTimes([], ["f"])
    failed = "the program failed with exit code -9; until then:"
    assert list(compiles._lines(nothing, -9, 5, "here")) == [
        *(failed, "f: 1 compile did not finish")
    ]
    found = CompileTimes(
        [TracedCompile("g", internal=False, untraced="", seconds=1.0)], ["f"]
    )
    shown = list(compiles._lines(found, -9, 5, "here"))
    assert shown[1].startswith("g: ")
    assert shown[-1] == "f: 1 compile did not finish"
