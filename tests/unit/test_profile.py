"""From a trace of XLA's profiler to a table and to a file for Perfetto."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from jaxmon.errors import WireError
from jaxmon.profile import perfetto, table, xspace
from jaxmon.profile.xspace import Event, Line, Plane
from tests.protobuf import field


MS = 10**9


def near(seconds: float) -> Any:
    return pytest.approx(seconds)


def op(name: str, start: int, duration: int, module: str | None = "jit_f") -> Event:
    return Event(f"kernel of {name}", start * MS, duration * MS, name, module)


def other(name: str, start: int, duration: int) -> Event:
    return Event(name, start * MS, duration * MS)


def plane(*events: Event, name: str = "/device:GPU:0", line: str = "Stream") -> Plane:
    ordered = tuple(sorted(events, key=lambda one: (one.start, -one.duration)))
    return Plane(name, (Line(line, 0, ordered),))


def encoded() -> bytes:
    """Return an XSpace of one plane, written field by field."""

    def named(key: int, name: str) -> bytes:
        return field(1, key) + field(2, field(1, key) + field(2, name))

    stats = field(4, field(1, 7) + field(7, 8)) + field(
        4, field(1, 9) + field(5, "jit_f")
    )
    event = field(1, 5) + field(2, 1000) + field(3, 2000) + stats
    line = field(2, "thread") + field(3, 42) + field(4, event) + field(11, "shown")
    return field(
        1,
        field(2, "/host:CPU")
        + field(3, line)
        + field(4, named(5, "dot.1"))
        + field(5, named(7, "hlo_op"))
        + field(5, named(8, "dot"))
        + field(5, named(9, "hlo_module")),
    )


def test_planes_lines_and_events_are_read() -> None:
    """Names are looked up in the metadata; a stat may be a text or refer to one."""
    event = Event("dot.1", 1000, 2000, "dot", "jit_f")
    expected = Plane("/host:CPU", (Line("shown", 42, (event,)),))

    assert xspace.parse(encoded()) == (expected,)


def test_unknown_fields_do_no_harm() -> None:
    """A newer XLA may report more: unknown fields are skipped."""
    space = encoded() + field(4, "host") + field(99, 5)

    assert xspace.parse(space) == xspace.parse(encoded())


@pytest.mark.parametrize("cut", [1, 5, 30, 60])
def test_a_trace_cut_off_is_an_error(cut: int) -> None:
    """Half a trace is not taken for a whole one."""
    with pytest.raises(WireError):
        xspace.parse(encoded()[:-cut])


def test_time_is_added_up_by_program_and_operation() -> None:
    """Runs on several devices count together, the most time first."""
    planes = [
        plane(op("dot", 0, 3), op("add", 3, 1), op("dot", 5, 3)),
        plane(op("dot", 0, 4), name="/device:GPU:1"),
        plane(op("dot", 0, 1, "jit_g")),
    ]

    assert [
        (r.program, r.operation, r.count, r.seconds) for r in table.rows(planes)
    ] == [
        ("jit_f", "dot", 3, near(0.010)),
        ("jit_f", "add", 1, near(0.001)),
        ("jit_g", "dot", 1, near(0.001)),
    ]


def test_an_operation_inside_another_counts_once() -> None:
    """A loop has the time that its body does not take."""
    rows = table.rows([plane(op("while", 0, 10), op("dot", 1, 4), op("dot", 5, 4))])

    assert {row.operation: row.seconds for row in rows} == {
        "dot": near(0.008),
        "while": near(0.002),
    }


def test_operations_that_overlap_keep_their_time() -> None:
    """One that begins before another ends is not inside it."""
    rows = table.rows([plane(op("a", 0, 5), op("b", 3, 5))])

    assert {row.operation: row.seconds for row in rows} == {
        "a": near(0.005),
        "b": near(0.005),
    }


def test_events_that_are_no_operations_are_left_out() -> None:
    """The host's own functions are no device time."""
    assert table.rows([plane(other("PjitFunction(f)", 0, 9), op("dot", 1, 2))])[0] == (
        table.Row("jit_f", "dot", 1, near(0.002))
    )


def test_a_tpus_operations_are_taken_from_their_line_only() -> None:
    """A TPU shows steps and modules on lines beside the one for its operations."""
    device = Plane(
        "/device:TPU:0",
        (
            Line("Steps", 0, (op("1", 0, 10),)),
            Line("XLA Ops", 0, (other("fusion.1", 0, 4), other("fusion.1", 4, 4))),
        ),
    )

    (row,) = table.rows([device])
    assert (row.operation, row.count, row.seconds) == (
        "fusion.1",
        2,
        near(0.008),
    )


def test_perfetto_gets_microseconds_by_plane_and_line() -> None:
    """Each plane is a process and each line a thread, on one scale of time."""
    planes = [
        Plane("/host:CPU", (Line("a", 5000, (op("dot", 1, 2),)),)),
        Plane("/device:GPU:0", (Line("b", 4000, (other("copy", 0, 1),)),)),
    ]

    events = json.loads(gzip.decompress(perfetto.render(planes)))["traceEvents"]
    assert [(e["name"], e["args"]["name"]) for e in events if e["ph"] == "M"] == [
        ("process_name", "/host:CPU"),
        ("thread_name", "a"),
        ("process_name", "/device:GPU:0"),
        ("thread_name", "b"),
    ]
    assert [(e["name"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"] == [
        ("kernel of dot", 1001.0, 2000.0),
        ("copy", 0.0, 1000.0),
    ]
    assert events[2]["args"] == {"hlo_op": "dot", "hlo_module": "jit_f"}


def test_an_empty_trace_is_a_file_all_the_same() -> None:
    """Nothing recorded makes no rows and a file without events."""
    assert table.rows(xspace.parse(b"")) == []
    assert json.loads(gzip.decompress(perfetto.render([])))["traceEvents"] == []
