"""A profile as a table, and as a document."""

import json
from pathlib import Path

import pytest

from jaxmon.preflight.profile import operations as groups
from jaxmon.preflight.profile import origins as paths
from jaxmon.preflight.profile import text
from jaxmon.preflight.profile.operations import BY, By, Operation, Profile
from jaxmon.preflight.profile.origins import NOWHERE, CodePlace, Origin
from jaxmon.preflight.profile.text import document


HERE = CodePlace("/app/model.py", 12, "Net.__call__", "flax Linear", 0)
THERE = CodePlace("/app/train.py", 7, "loss", "", 0)


def operation(
    name: str,
    seconds: float,
    place: CodePlace | None,
    path: str,
    program: str = "jit_step",
) -> Operation:
    return Operation(program, name, 10, seconds, Origin(place, paths.read(path)))


OPERATIONS = (
    operation("dot.1", 0.5, HERE, "jit(step)/enc/dot_general"),
    operation("dot.2", 0.2, HERE, "jit(step)/transpose(jvp(enc))/dot_general"),
    operation("exp.1", 0.2, THERE, "jit(step)/exp"),
    operation("exp.1", 0.097, THERE, "jit(predict)/exp", "jit_predict"),
    Operation("jit_step", "copy", 1, 0.003, NOWHERE),
)
PROFILE = Profile(OPERATIONS, recorded=2.0, busy=0.9, devices=1)
LABELS = {"jit_step": "app.step"}
TABLE = """\
recorded 2.0 s: operations ran 45 % of the time, idle 55 %
99.7 % of their time comes from lines of the program

LINE                 IN               MOSTLY           BACKWARD     TIME   SHARE
/app/model.py:12     Net.__call__     dot_general          29 %   0.70 s    70 %
/app/train.py:7      loss             exp                   0 %   0.30 s    30 %
and 1 more line (0.3 % of the time)
"""


def shown(by: By, *, top: int | None = None, width: int = 80) -> list[str]:
    grouped = groups.grouped(OPERATIONS, by, LABELS)
    return text.lines(PROFILE, grouped, by, top=top, width=width)


def test_lines_have_function_kind_and_pass() -> None:
    """The heaviest line is first; what is below a hundredth is counted."""
    assert shown("line") == TABLE.splitlines()


def rows(by: By) -> list[str]:
    found = shown(by, width=120)
    assert max(map(len, found)) <= 120
    return [line.partition("  ")[0] for line in found[4:]]


def test_rows_are_what_is_asked_for() -> None:
    """Functions have jaxmon's label, where it is known."""
    assert rows("function") == ["app.step", "jit_predict"]
    assert rows("scope") == ["enc", "no scope"]
    assert rows("op")[:4] == ["dot.1", "dot.2", "exp.1", "exp.1"]
    assert [len(shown(by, top=1)) for by in BY] == [6, 6, 6, 6]


def test_a_library_is_named_beside_what_it_does() -> None:
    """A wide terminal has room for it."""
    (line,) = [one for one in shown("line", width=120) if "model.py" in one]

    assert "dot_general in flax Linear" in line


@pytest.mark.parametrize("width", [80, 100, 120])
def test_no_line_is_too_long(width: int) -> None:
    """Whatever the names are, wide and hostile ones too."""
    place = CodePlace("/深い/" * 90 + "x.py", 10**9, "f\x1b[2J" * 50, "漢字" * 50, 0)
    one = operation("名" * 99, 1.0, place, f"jit(f)/{'s/' * 90}{'p' * 99}", "j" * 99)
    profile = Profile((one,) * 30, recorded=1.0, busy=1.0, devices=64)
    for by in BY:
        grouped = groups.grouped(profile.operations, by, {})
        found = text.lines(profile, grouped, by, top=None, width=width)
        assert all(line.isprintable() for line in found)
        assert found[1] == "times are sums over the devices"
        assert max(map(len, found)) <= width


def test_nine_tenths_of_the_time_are_in_twenty_rows() -> None:
    """Fewer if they suffice; at most twenty however many lines there are."""

    def count(*seconds: float) -> int:
        made = [groups.Group(seconds=one) for one in seconds]
        return groups.enough(made, 20)

    assert count(0.95, 0.005, 0.045) == 1
    assert count(0.5, 0.39, 0.1, 0.01) == 4
    assert count(*[1.0] * 15) == 15
    assert count(*[1.0] * 100) == 20
    assert count() == 0


def test_without_operations_it_is_said_what_to_do() -> None:
    """Idle devices are all there is to report."""
    found = text.lines(Profile((), recorded=3.0), [], "line", top=None, width=80)

    assert found[0] == "recorded 3.0 s: operations ran 0 % of the time, idle 100 %"
    assert "--seconds" in found[1]


def test_without_programs_there_are_no_lines() -> None:
    """The reason is stated, and the table is that of XLA's names."""
    one = Operation("jit_step", "dot.1", 1, 1.0)
    profile = Profile((one,), recorded=1.0, busy=1.0, without_programs=1)
    grouped = groups.grouped(profile.operations, "op", {})
    found = text.lines(profile, grouped, "op", top=None, width=80)

    assert "the trace does not have the code of 1 XLA program: no lines" in found
    assert found[-1].startswith("dot.1")


def test_the_document_has_the_same_facts() -> None:
    """And every operation with its place."""
    grouped = groups.grouped(OPERATIONS, "line", LABELS)
    found = json.loads(json.dumps(document(PROFILE, grouped, "line", LABELS)))

    assert (found["recorded"], found["busy"], found["by"]) == (2.0, 0.45, "line")
    assert found["located"] == pytest.approx(0.997)
    first = found["groups"][0]
    assert (Path(first["file"]).name, first["line"]) == ("model.py", 12)
    assert first["seconds"] == pytest.approx(0.7)
    assert first["backward_seconds"] == pytest.approx(0.2)
    assert (first["library"], first["own"]) == ("flax Linear", True)
    assert len(found["operations"]) == 5
    second = found["operations"][1]
    assert second["function"] == "app.step"
    assert second["backward"]
    assert (second["file"], second["line"]) == ("/app/model.py", 12)
    assert found["operations"][4]["file"] is None
