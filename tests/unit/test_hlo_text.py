"""The text of HLO modules, as releases of XLA print it, and as none does."""

from __future__ import annotations

import pytest

from jaxmon.cli.compiles import traced_lines
from jaxmon.errors import WireError
from jaxmon.facts.programs import CompiledProgram, CompiledPrograms, read
from jaxmon.facts.walltime import Period, PlaceTime
from jaxmon.preflight.compiled.costs import LineCost, LinePlace, ProgramCosts
from jaxmon.preflight.compiled.hlo_text import HloText
from jaxmon.preflight.compiled.listing import of_hlo, of_jaxpr
from jaxmon.preflight.compiled.view import ProcessPrograms, document, render, text


OLD = """HloModule jit_step, entry_computation_layout={(f32[4,8]{1,0})->f32[4,4]{1,0}}

%body (s: (s32[], f32[4,4])) -> (s32[], f32[4,4]) {
  %s = (s32[], f32[4,4]{1,0}) parameter(0)
  %x = f32[4,4]{1,0} get-tuple-element((s32[], /*index=1*/f32[4,4]{1,0}) %s), index=1
  %dot.2 = f32[4,4]{1,0:T(8,128)} dot(f32[4,4]{1,0} %x, f32[4,4]{1,0} %x), \
lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_type="dot" \
op_name="jit(step)/while/dot" source_file="/app/step.py" source_line=9}
  ROOT %t = (s32[], f32[4,4]{1,0}) tuple(%dot.2)
}

%fused (p: f32[4,4], q: f32[1,4]) -> f32[4,4] {
  %p = f32[4,4]{1,0} parameter(0)
  %q = f32[1,4]{1,0} parameter(1)
  ROOT %dus = f32[4,4]{1,0} dynamic-update-slice(%p, %q), \
metadata={source_file="/app/step.py" source_line=12}
}

ENTRY %main (a: f32[4,8], b: f32[8,4]) -> f32[4,4] {
  %a = f32[4,8]{1,0} parameter(0)
  %b = f32[8,4]{1,0} parameter(1)
  %gemm = (f32[4,4]{1,0}, s8[1024]{0}) custom-call(%a, %b), \
custom_call_target="__cublas$gemm", metadata={op_name="jit(step)/dot" \
source_file="/app/step.py" source_line=5}, backend_config={"gemm_backend_config":\
{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"]}}}
  %loop = (s32[], f32[4,4]{1,0}) while(%gemm), condition=%cond, body=%body, \
backend_config={"known_trip_count":{"n":"7"}}
  %copy.1 = f32[4,4]{0,1} copy(%loop), metadata={source_file="/app/step.py" \
source_line=11}
  %gather = (f32[2,4], f32[4,4]) all-gather-start(%copy.1), dimensions={0}, \
metadata={source_file="/app/step.py" source_line=11}
  %done = f32[4,4] all-gather-done(%gather)
  ROOT %in_place = f32[4,4]{1,0} fusion(%done, %a), kind=kLoop, calls=%fused
}
"""
TABLES = """HloModule jit_f

FileNames
1 "/app/model.py"
2 "/env/site-packages/flax/linear.py"

FunctionNames
1 "f"
2 "Dense.__call__"

FileLocations
1 {file_name_id=1 function_name_id=1 line=3 end_line=3}
2 {file_name_id=2 function_name_id=2 line=80 end_line=80}

StackFrames
1 {file_location_id=1 parent_frame_id=%s}
2 {file_location_id=2 parent_frame_id=%s}


ENTRY %%main (x: f32[8]) -> f32[8] {
  %%x = f32[8]{0} parameter(0), metadata={op_name="stack_frame_id=1 source_line=7"}
  ROOT %%y = f32[8]{0} add(%%x, %%x), metadata={op_name="f/add" stack_frame_id=2}
}
"""


def costs(text: str, function: str = "step") -> ProgramCosts:
    return ProgramCosts(CompiledProgram(function=function), text, "")


def at(found: ProgramCosts, line: int) -> LineCost:
    return found.lines[LinePlace("/app/step.py", line)]


def test_lines_of_older_releases() -> None:
    """FLOPs are those of all turns of a loop; a library's product counts, too."""
    found = costs(OLD)

    assert at(found, 5).flops == 2 * 4 * 4 * 8
    assert at(found, 9).flops == 7 * 2 * 4 * 4 * 4
    assert at(found, 9).written_bytes == 7 * 4 * 4 * 4
    assert at(found, 11).moved_bytes == 4 * 4 * 4
    assert at(found, 11).collective_bytes == 4 * 4 * 4
    assert at(found, 11).written_bytes == 2 * 4 * 4 * 4
    # What is updated in place, not all of the array.
    assert at(found, 12).written_bytes == 4 * 4
    assert found.instructions == OLD.count("\n  ") == 15
    # What has no line is at that of the nearest that uses its result.
    assert set(found.lines) == {LinePlace("/app/step.py", n) for n in (5, 9, 11, 12)}
    assert len(found.notes) == 2
    assert found.notes[1].startswith("This JAX keeps one line of each instruction")


def test_a_loop_of_unknown_length_counts_once_and_is_said() -> None:
    """So is a library that does not say what it multiplies."""
    text = OLD.replace("known_trip_count", "other").replace("lhs_contracting_dim", "l")
    found = costs(text)

    assert at(found, 9).written_bytes == 4 * 4 * 4
    assert found.notes[2:] == [
        "1 loop of unknown length: what is in it counts once.",
        "FLOPs of 2 calls of a library are unknown.",
    ]


@pytest.mark.parametrize("parents", [("1", "2"), ("0", "1")])
def test_stacks_of_newer_releases(parents: tuple[str, str]) -> None:
    """Printed one too high or not, they are those of the table; names say nothing."""
    module = HloText(TABLES % parents)
    add = next(
        i for c in module.computations() for i in c.instructions.values() if i.operands
    )

    assert [(f.file, f.line) for f in module.stack(add)] == [
        ("/env/site-packages/flax/linear.py", 80),
        ("/app/model.py", 3),
    ]
    found = costs(TABLES % parents, "f")
    assert found.lines[LinePlace("/app/model.py", 3)].instructions == {
        "add": 1,
        "parameter": 1,
    }
    assert found.made == {(LinePlace("/app/model.py", 3),): 2}


SCHEDULED = """HloModule jit_step, is_scheduled=true, buffer_donor={ (0, {}) }

%body (p: (f32[2,4], f32[4])) -> (f32[2,4], f32[4]) {
  %p = (f32[2,4], f32[4]) parameter(0)
  %stack = f32[2,4] get-tuple-element(%p), index=0
  %x = f32[4] get-tuple-element(%p), index=1
  %wide = f32[64] broadcast(%x), metadata={op_name="step" source_file="/app/step.py" \
source_line=3}
  %kept = f32[4] slice(%wide), metadata={op_name="jvp(f)/sin" source_file=\
"/app/step.py" source_line=4}
  %filled = f32[2,4] dynamic-update-slice(%stack, %kept, %x)
  %next = f32[4] add(%x, %x)
  ROOT %both = (f32[2,4], f32[4]) tuple(%filled, %next)
}

ENTRY %main (a: f32[4]) -> f32[4] {
  %a = f32[4] parameter(0)
  %empty = f32[2,4] constant({...})
  %made = f32[2,4] copy(%empty), metadata={op_name="scan" source_file="/app/step.py" \
source_line=9}
  %begin = (f32[2,4], f32[4]) tuple(%made, %a)
  %loop = (f32[2,4], f32[4]) while(%begin), condition=%cond, body=%body
  %end = f32[4] get-tuple-element(%loop), index=1
  ROOT %last = f32[4] negate(%end), metadata={op_name="transpose(f)" source_file=\
"/app/step.py" source_line=11}
}
"""


def test_what_is_alive_at_the_peak_is_at_its_lines() -> None:
    """
    What a loop fills belongs to the line that it is filled by; what it carries, updates
    in place or returns is counted once, or not at all. No order, no peak.
    """
    found = costs(SCHEDULED)

    assert {place.line: of.held_bytes for place, of in found.lines.items()} == {
        **dict.fromkeys((9, 11), 0),
        3: 4 * 64,
        4: 4 * (2 * 4 + 4),
    }
    assert at(found, 4).saved_bytes == at(found, 4).held_bytes
    assert "16 B of arguments are donated in vain: " in found.notes[1]
    unordered = costs(SCHEDULED.replace("is_scheduled=true", "x"))
    assert not any(line.held_bytes for line in unordered.lines.values())


def test_each_row_of_a_listing_is_beside_its_line() -> None:
    """Metadata is not repeated; what has no line is shown as well."""
    rows = list(of_hlo(TABLES % ("1", "2")).lines())

    assert rows[:-1] == [
        f"{'':15}  ENTRY %main (x: f32[8]) -> f32[8] {{",
        "/app/model.py:3    %x = f32[8]{0} parameter(0)",
        "/app/model.py:3    ROOT %y = f32[8]{0} add(%x, %x)",
    ]
    gone = list(of_jaxpr({}).lines())
    assert gone == ["JAX has let go of its jaxpr."]
    rest = {"places": [["/app/a.py", 1]], "rows": [[0, "a = b"]], "missing": True}
    assert list(of_jaxpr(rest).lines()) == [
        "/app/a.py:1  a = b",
        "The rest is left out.",
    ]


def test_lines_that_are_long_traced_are_said() -> None:
    """
    Not those that take little, nor the call, where XLA compiles as well; if no look has
    shown that it is one, more time than JAX says it has traced for is XLA's.
    """
    places = tuple(
        PlaceTime(place=at, seconds=seconds, state=state, function=function)
        for at, seconds, state, function in (
            ("a.py:7", 3.0, "compile", "step"),
            ("a.py:8", 0.4, "compile", "step"),
            ("a.py:20", 9.0, "compile", "step"),
            ("a.py:20", 1.0, "device", "step"),
            ("a.py:9", 9.0, "compile", "other"),
        )
    )

    period = Period(places=places)
    found = list(traced_lines(period, "step", 3.5))
    assert found == ["Tracing it took at least 3.0 s at a.py:7."]
    assert list(traced_lines(period, "step", 0.1)) == []


HOSTILE = [
    SCHEDULED.replace("%main (a", "%main2 (a").replace("body=%body", "body=%main2"),
    SCHEDULED.replace("index=1", f"index={'9' * 40}").replace("(%begin)", "()"),
    SCHEDULED.replace("[2,4]", f"[{'9' * 30}]").replace("(%stack, %kept, %x)", "()"),
    "HloModule x",
    "HloModule x\n\nENTRY %m (a: f32[]) -> f32[] {\n  %a = f32[] parameter(",
    "HloModule x\n\nENTRY %m () -> () {\n  %a = (((( b(\n  = c\n  %d = f32[9]",
    OLD.replace("[4,4]", f"[{'9' * 400}]").replace('"7"', f'"{"9" * 4000}"'),
    OLD.replace("calls=%fused", "calls=%main").replace("body=%body", "body=%main"),
    TABLES % ("9" * 400, "2"),
    TABLES.replace("StackFrames\n1", f"StackFrames\n{'8' * 9}") % ("7", "7"),
    OLD.replace("source_line=9", f"source_line={'9' * 5000}"),
    OLD.replace("[4,4]", f"[{'9' * 18}{',999999999' * 60}]"),
    OLD.replace("lhs_contracting_dims={1}", "lhs_contracting_dims={999999999999}"),
]


@pytest.mark.parametrize("hostile", HOSTILE)
def test_what_no_xla_prints_is_read_as_far_as_it_goes(hostile: str) -> None:
    """Nothing raises, nothing is infinite, and it is shown."""
    found = costs(hostile)
    for line in found.lines.values():
        assert 0 <= line.flops < 1e32
        assert 0 <= line.written_bytes < 1e32
    both = ProcessPrograms([found.program], found, found)
    assert list(text(both, 80))
    assert document(both)
    assert "<svg" in render(both, "p") or not found.made


@pytest.mark.parametrize("other", ["", "<html>", "\x00HloModule", "module @jit_f {"])
def test_what_is_no_module_is_said(other: str) -> None:
    """A note says so, and what the agent said remains."""
    with pytest.raises(WireError):
        HloText(other)
    if other:
        assert costs(other).notes[-1].startswith("Its HLO cannot be read: ")


def test_responses_are_not_trusted() -> None:
    """What is no record is none, names are text; a later schema is rejected."""
    calls = [{"file": "/a<b>.py", "line": 4, "function": "<script>"}]
    stacks = [{"calls": calls, "count": 3, "primitives": {"add": 3}}, "x"]
    about = {"function": "m.\x1b[31mf", "equations": 9, "stacks": stacks}
    captured = {"bytes": 8, "where": 77}
    found = read({"schema": 1, "programs": [{**about, "captured": captured}, 7]})
    program = found.programs[0]
    costs = ProgramCosts(program, "", "gone")

    assert +costs.traced == {(LinePlace("/a<b>.py", 4),): 3}
    assert program.captured is not None
    assert program.captured.bytes == 8
    assert program.captured.where == "77"  # text, as any name
    page = render(ProcessPrograms(found.programs, costs), "<b>")
    assert "<script>" not in page
    assert "\x1b" not in page
    with pytest.raises(ValueError, match="upgrade it"):
        read({"schema": 2})
    assert read({"schema": 1, "programs": "x"}) == CompiledPrograms(1)
