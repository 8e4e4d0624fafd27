"""The operations of a trace: their time, and how busy the devices were."""

from typing import Any

import pytest

from jaxmon.preflight.profile import operations
from jaxmon.preflight.profile.operations import Operation, Profile
from jaxmon.preflight.profile.xspace import Plane, Space, Stated, TraceEvent, TraceLine
from tests.helpers.traces import MS, Code, op, other, plane


def near(seconds: float) -> Any:
    return pytest.approx(seconds)


def read(*planes: Plane, **more: Any) -> Profile:
    return operations.read(Space(planes, **more))


def seconds(*planes: Plane) -> dict[str, Any]:
    return {one.name: near(one.seconds) for one in read(*planes).operations}


def test_time_is_added_up_by_program_and_operation() -> None:
    """Runs on several devices count together, the most time first."""
    found = read(
        plane(op("dot", 0, 3), op("add", 3, 1), op("dot", 5, 3)),
        plane(op("dot", 0, 4), name="/device:GPU:1"),
        plane(op("dot", 0, 1, "jit_g", 2)),
    ).operations

    assert [(one.program, one.name, one.count, one.seconds) for one in found] == [
        ("jit_f", "dot", 3, near(0.010)),
        ("jit_f", "add", 1, near(0.001)),
        ("jit_g", "dot", 1, near(0.001)),
    ]


def test_an_operation_inside_another_counts_once() -> None:
    """A loop has the time that its body does not take."""
    loop = plane(op("while", 0, 10), op("dot", 1, 4), op("dot", 5, 4))

    assert seconds(loop) == {"dot": 0.008, "while": 0.002}


def test_operations_that_overlap_keep_their_time() -> None:
    """One that begins before another ends is not inside it."""
    assert seconds(plane(op("a", 0, 5), op("b", 3, 5))) == {"a": 0.005, "b": 0.005}


def test_what_the_host_does_for_a_device_is_none_of_its_time() -> None:
    """Its functions are left out, as are launches that name an operation."""
    host = plane(other("PjitFunction(f)", 0, 9), op("dot", 0, 7), name="/host:CPU")

    assert seconds(host) == {"dot": 0.007}
    assert seconds(host, plane(op("dot", 1, 2))) == {"dot": 0.002}
    assert seconds(host, plane(other("memcpy", 1, 2))) == {"dot": 0.007}


def test_a_tpus_operations_are_taken_from_their_line_only() -> None:
    """A TPU shows steps and modules on lines beside the one for its operations."""
    device = Plane(
        "/device:TPU:0",
        (
            TraceLine("Steps", 0, (op("1", 0, 10),)),
            TraceLine("XLA Ops", 0, (other("fusion.1", 0, 4), other("fusion.1", 4, 4))),
        ),
    )

    (one,) = read(device).operations
    assert (one.name, one.count, one.seconds) == ("fusion.1", 2, near(0.008))


def test_time_in_which_any_operation_ran_is_busy() -> None:
    """Overlaps count once, lines begin at their own time, devices are averaged."""
    first = Plane(
        "/device:GPU:0",
        (
            TraceLine("Stream 1", 0, (op("a", 0, 4), op("b", 6, 1))),
            TraceLine("Stream 2", 2_000_000, (op("c", 0, 3),)),  # 2 ms later
        ),
    )
    second = plane(op("a", 0, 2), name="/device:GPU:1")

    found = read(first, second, seconds=0.010)
    assert found.busy == near((0.006 + 0.002) / 2)
    assert (found.recorded, found.devices) == (0.010, 2)


def test_how_long_was_recorded_can_be_known_better() -> None:
    """The time of the trace is used if it is not."""
    space = Space((), seconds=2.5)

    assert operations.read(space).recorded == 2.5
    assert operations.read(space, seconds=1.0).recorded == 1.0


def located(*events: TraceEvent, programs: dict[int, memoryview]) -> Profile:
    return read(plane(*events), programs=programs)


def program() -> memoryview:
    """Return one whose operation comes from line 3 of a program."""
    code = Code({"here": [("/app/train.py", 3, "step")]})
    dot = code.instruction("dot.1", "dot", stack="here", path="jit(f)/dot_general")
    code.computation(dot)
    return code.proto("jit_f")


def test_operations_are_located_in_their_program() -> None:
    """An operation of the same name in a program that is not known has no line."""
    found = located(
        op("dot.1", 0, 3), op("dot.1", 3, 1, "jit_g", 2), programs={1: program()}
    )

    place = found.operations[0].origin.place
    assert place is not None
    assert (place.file, place.line, place.function) == ("/app/train.py", 3, "step")
    assert found.operations[1].origin.place is None
    assert (found.located, found.seconds) == (near(0.003), near(0.004))
    assert found.without_programs == 1
    assert not found.without_lines


@pytest.mark.parametrize("proto", [b"\x0a\x05ab", bytes(program())[:-3]])
def test_a_program_that_is_malformed_is_as_good_as_none(proto: bytes) -> None:
    """The times are right without it."""
    (one,) = located(op("dot.1", 0, 3), programs={1: memoryview(proto)}).operations

    assert one == Operation("jit_f", "dot.1", 1, near(0.003))
    assert located(op("dot.1", 0, 3), programs={1: memoryview(proto)}).without_lines


def test_what_the_trace_itself_says_is_used_without_a_program() -> None:
    """A TPU does; the stack may be given from either end."""
    stack = "/app/main.py:9:1\n/app/train.py:3:5\n"
    for lines in (stack.splitlines(), stack.splitlines()[::-1]):
        stated = Stated("jit(f)/enc/add:", "/app/train.py:3", "\n".join(lines))
        event = TraceEvent("add.1", 0, MS, module="jit_f", stated=stated)
        (one,) = read(plane(event, line="XLA Ops")).operations

        place = one.origin.place
        assert place is not None
        assert (place.file, place.line) == ("/app/train.py", 3)
        assert one.origin.path[:2] == ("enc", "add")
