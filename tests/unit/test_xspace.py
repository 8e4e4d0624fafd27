"""From a trace of XLA's profiler to planes, and to a file for Perfetto."""

import gzip
import json

import pytest

from jaxmon.errors import WireError
from jaxmon.preflight.profile import text as perfetto
from jaxmon.preflight.profile import xspace
from jaxmon.preflight.profile.xspace import Plane, Stated, TraceEvent, TraceLine
from tests.helpers.traces import field, op, other


def entry(key: int, name: str, *more: bytes) -> bytes:
    """Return a metadata entry."""
    return field(1, key) + field(2, field(1, key) + field(2, name) + b"".join(more))


def text(key: int, value: str) -> bytes:
    """Return a stat with a text."""
    return field(1, key) + field(5, value)


def encoded(operation: str = "dot") -> bytes:
    """Return an XSpace of one plane, written field by field."""
    stats = (field(1, 7) + field(7, 8), text(9, "jit_f"), field(1, 10) + field(4, 3))
    event = field(1, 5) + field(2, 1000) + field(3, 2000)
    event += b"".join(field(4, stat) for stat in stats)
    line = field(2, "thread") + field(3, 42) + field(4, event) + field(11, "shown")
    names = {7: "hlo_op", 8: operation, 9: "hlo_module", 10: "program_id"}
    return field(
        1,
        field(2, "/host:CPU")
        + field(3, line)
        + field(4, entry(5, "dot.1"))
        + b"".join(field(5, entry(key, name)) for key, name in names.items()),
    )


def test_planes_lines_and_events_are_read() -> None:
    """Names are looked up in the metadata; a stat may be a text or refer to one."""
    event = TraceEvent("dot.1", 1000, 2000, "dot", "jit_f", 3)
    expected = Plane("/host:CPU", (TraceLine("shown", 42, (event,)),))

    assert xspace.parse(encoded()) == xspace.Space((expected,))


def test_the_innermost_of_nested_operations_counts() -> None:
    """A GPU names the operations that a kernel is in, the innermost last."""
    (plane,) = xspace.parse(encoded("while.2::body::dot.3")).planes

    assert plane.lines[0].events[0].op == "dot.3"


def test_what_a_tpu_says_of_its_operations_is_read() -> None:
    """It is said once for all runs of an operation, with its short name."""
    stats = (text(1, "jit(f)/add:"), text(2, "f.py:3"), text(3, "f.py:3:1\n"))
    more = [field(4, "add.1"), *(field(5, stat) for stat in stats)]
    names = {1: "tf_op", 2: "source", 3: "source_stack"}
    space = field(
        1,
        field(2, "/device:TPU:0")
        + field(3, field(2, "XLA Ops") + field(4, field(1, 5) + field(3, 9)))
        + field(4, entry(5, "%add.1 = f32[2] add(...)", *more))
        + b"".join(field(5, entry(key, name)) for key, name in names.items()),
    )

    (plane,) = xspace.parse(space).planes
    assert plane.lines[0].events == (
        TraceEvent("add.1", 0, 9, stated=Stated("jit(f)/add:", "f.py:3", "f.py:3:1\n")),
    )


def test_programs_and_the_time_recorded_are_read() -> None:
    """They are planes of their own, which are none of a device."""
    stats = (field(1, 1) + field(6, b"proto"), field(1, 2) + field(3, 38))
    programs = field(
        1,
        field(2, "/host:metadata")
        + field(4, entry(19, "jit_f(38)", *(field(5, stat) for stat in stats)))
        + field(5, entry(1, "Hlo Proto"))
        + field(5, entry(2, "program_id")),
    )
    recorded = field(
        1,
        field(2, "Task Environment")
        + field(5, entry(1, "profile_start_time"))
        + field(5, entry(2, "profile_stop_time"))
        + field(6, field(1, 1) + field(3, 10**18))
        + field(6, field(1, 2) + field(3, 10**18 + 1_500_000_000)),
    )

    space = xspace.parse(programs + recorded)
    assert space == xspace.Space((), {38: memoryview(b"proto")}, 1.5)


def test_unknown_fields_do_no_harm() -> None:
    """A newer XLA may report more: unknown fields are skipped."""
    space = encoded() + field(4, "host") + field(99, 5)

    assert xspace.parse(space) == xspace.parse(encoded())


@pytest.mark.parametrize("cut", [1, 5, 30, 60])
def test_a_trace_cut_off_is_an_error(cut: int) -> None:
    """Half a trace is not taken for a whole one."""
    with pytest.raises(WireError):
        xspace.parse(encoded()[:-cut])


def test_perfetto_gets_microseconds_by_plane_and_line() -> None:
    """Each plane is a process and each line a thread, on one scale of time."""
    planes = [
        Plane("/host:CPU", (TraceLine("a", 5000, (op("dot", 1, 2),)),)),
        Plane("/device:GPU:0", (TraceLine("b", 4000, (other("copy", 0, 1),)),)),
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
    """Nothing recorded makes a file without events."""
    assert xspace.parse(b"") == xspace.Space(())
    assert json.loads(gzip.decompress(perfetto.render([])))["traceEvents"] == []
