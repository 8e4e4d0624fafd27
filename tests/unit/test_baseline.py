"""Baselines: files, tolerances, comparisons and the table, without running anything."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jaxmon.errors import BaselineError
from jaxmon.host.formats.layout import columns
from jaxmon.limits import Limits
from jaxmon.preflight.baseline.compare import compare, lines
from jaxmon.preflight.baseline.record import (
    TOLERANCES,
    Baseline,
    RunTimes,
    TimedRun,
    Tolerance,
    check_writable,
    from_processes,
    read,
    tolerances,
    write,
)


VERSIONS = {"jax": "0.10.2", "python": "3.11.7", "platform": "cpu", "device": "cpu"}


def record(versions: dict[str, str] | None = None, **functions: Any) -> Baseline:
    """Return a record; functions by name, with dots spelled as underscores."""
    return Baseline(versions or VERSIONS, functions)


def verdicts(before: Baseline, after: Baseline, *given: str) -> dict[str, str]:
    """Return the verdict on each figure that changed, of one function."""
    found = compare(before, after, tolerances(given, Limits()))
    return {change.measure: change.verdict for change in found.changes}


def test_record_survives_its_file(tmp_path: Path) -> None:
    """What is written is read, in an order that does not depend on the run."""
    path = tmp_path / "b.json"
    one = record(b={"fusions": 2, "compiles": 1}, a={"compile_seconds": 0.25})
    other = record(a={"compile_seconds": 0.25}, b={"compiles": 1, "fusions": 2})
    assert str(one) == str(other)
    write(one, path)
    assert read(path) == one
    assert path.read_text().endswith("}\n")
    assert list(tmp_path.iterdir()) == [path]
    names = list(json.loads(path.read_text())["functions"]["b"])
    assert names == ["compiles", "fusions"]


def test_what_a_later_jaxmon_adds_is_ignored(tmp_path: Path) -> None:
    """Unknown figures and entries are no error, and are not compared."""
    path = tmp_path / "b.json"
    document = json.loads(str(record(f={"compiles": 1})))
    document["functions"]["f"]["joules"] = 3
    document["more"] = []
    path.write_text(json.dumps(document))
    assert read(path) == record(f={"compiles": 1})


def damaged() -> dict[str, bytes]:
    """Return files that are no baselines."""
    good = str(record(f={"compiles": 1}))
    return {
        "empty": b"",
        "truncated": good[: len(good) // 2].encode(),
        "not_json": b"compiles: 1",
        "not_text": b"\xff\xfe\x00{",
        "binary": bytes(range(256)),
        "list": b"[]",
        "null": b"null",
        "no_schema": b"{}",
        "later_schema": good.replace('"schema": 1', '"schema": 2').encode(),
        "text_for_schema": good.replace('"schema": 1', '"schema": "1"').encode(),
        "functions_list": b'{"schema": 1, "versions": {}, "functions": []}',
        "no_functions": b'{"schema": 1, "versions": {}}',
        "function_number": b'{"schema": 1, "versions": {}, "functions": {"f": 1}}',
        "version_number": b'{"schema": 1, "versions": {"jax": 1}, "functions": {}}',
        "text": good.replace('"compiles": 1', '"compiles": "1"').encode(),
        "true": good.replace('"compiles": 1', '"compiles": true').encode(),
        "negative": good.replace('"compiles": 1', '"compiles": -1').encode(),
        "nan": good.replace('"compiles": 1', '"compiles": NaN').encode(),
        "infinite": good.replace('"compiles": 1', '"compiles": 1e999').encode(),
        "huge": good.replace('"compiles": 1', f'"compiles": {"9" * 9999}').encode(),
        "big": good.replace('"compiles": 1', f'"compiles": {"9" * 999}').encode(),
        "deep": b"[" * 100_000,
    }


@pytest.mark.parametrize("kind", damaged())
def test_damaged_files_are_refused(kind: str, tmp_path: Path) -> None:
    """Whatever is in the file, the error names it and what to do."""
    path = tmp_path / "b.json"
    path.write_bytes(damaged()[kind])
    with pytest.raises(BaselineError, match=r"b\.json is not a baseline: ") as caught:
        read(path)
    assert len(str(caught.value)) < 500


def test_files_that_cannot_be_opened_are_refused(tmp_path: Path) -> None:
    """Absent files and directories are errors of the same kind."""
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(BaselineError, match=r"cannot be read|is a directory"):
            read(path)


def test_unwritable_places_are_noticed_before_and_after(tmp_path: Path) -> None:
    """They are said before a run is lost."""
    file = tmp_path / "file"
    file.write_text("mine")
    for path in (tmp_path, tmp_path / "none" / "b.json", file / "b.json"):
        with pytest.raises(BaselineError, match="cannot write"):
            check_writable(path)
        with pytest.raises(BaselineError, match="cannot write"):
            write(record(), path)
    assert list(tmp_path.iterdir()) == [file]
    assert file.read_text() == "mine"
    check_writable(tmp_path / "b.json")


def test_processes_are_put_together() -> None:
    """Counts and seconds add up, of the sizes of programs the largest stays."""
    one = {"compiles": 1, "compile_seconds": 0.1, "flops": 5, "fusions": 1}
    two = {"compiles": 2, "compile_seconds": 0.2, "flops": 7}
    found = from_processes(
        [
            {"versions": {"jax": "1"}, "functions": {"f": one}},
            {"versions": {"jax": "1", "platform": "cpu"}, "functions": {"f": two}},
        ]
    )
    assert found.versions == {"jax": "1", "platform": "cpu"}
    assert found.functions == {
        "f": {"compiles": 3, "compile_seconds": 0.3, "flops": 7, "fusions": 1}
    }
    assert from_processes([]) == Baseline({}, {})


@pytest.mark.parametrize(
    ("figure", "before", "after", "given", "verdict"),
    [
        ("compiles", 1, 2, (), "worse"),
        ("compiles", 2, 1, (), "better"),
        ("compiles", 1, 3, ("compiles=2",), "within"),
        ("compiles", 1, 4, ("compiles=2",), "worse"),
        ("recompiles", 0, 1, (), "worse"),
        ("recompiles", 0, 1, ("recompiles=50%",), "worse"),
        ("recompiles", 0, 1, ("recompiles=1",), "within"),
        ("recompiles", 0, 9, ("recompiles=off",), "within"),
        ("flops", 100, 101, (), "within"),
        ("flops", 100, 101.01, (), "worse"),
        ("flops", 0, 1, (), "worse"),
        ("compile_seconds", 1.0, 2.0, (), "within"),
        ("compile_seconds", 1.0, 2.01, (), "worse"),
        ("compile_seconds", 0.0, 0.5, (), "within"),
        ("compile_seconds", 1.0, 2.9, ("compile_seconds=100%+1",), "within"),
        ("compile_seconds", 1.0, 3.1, ("compile_seconds=100%+1",), "worse"),
        ("fusions", 10, 11, ("fusions=10%",), "within"),
        ("fusions", 10, 12, ("fusions=10%",), "worse"),
        ("fusions", 10, 11, ("fusions=0",), "worse"),
        ("fusions", 10, 11, ("fusions=9", "fusions=0%"), "worse"),
        ("temporary_bytes", 3e15, 3e15 + 2, ("temporary_bytes=0",), "within"),
    ],
)
def test_tolerances_decide(figure, before, after, given, verdict):
    """A figure may grow by its tolerance and no further; a smaller one is better."""
    found = verdicts(record(f={figure: before}), record(f={figure: after}), *given)
    assert found == {figure: verdict}


def test_same_figures_are_no_change() -> None:
    """A run like the baseline has nothing to show, of any figure."""
    figures = dict.fromkeys(TOLERANCES, 7)
    comparison = compare(record(f=figures), record(f=figures), tolerances((), Limits()))
    assert (comparison.changes, comparison.worse) == ((), ())
    assert list(lines(comparison))[-1] == "no regression in 1 function"


@pytest.mark.parametrize(
    "text",
    [
        "fusions",
        "fusions=",
        "fusions=%",
        "fusions=-1",
        "fusions=nan",
        "fusions=1e9",
        "fusions=5%%",
        "fusions=5%+",
        "fusions=٣",
        "fusions= 5%",
        "fusions=99999999999999999999",
        "fuses=1",
        "=1",
        "",
    ],
)
def test_tolerances_that_are_none_are_refused(text: str) -> None:
    """A mistyped tolerance is an error, and not a looser gate."""
    with pytest.raises(BaselineError):
        tolerances([text], Limits())


def test_tolerances_are_shown_as_they_are_given() -> None:
    """What the table shows can be given as an option."""
    for text in ("5%", "2", "50%+0.5", "0"):
        found = tolerances([f"flops={text}"], Limits())["flops"]
        assert str(found) == text
    assert tolerances(["flops=off"], Limits())["flops"] is None
    for name, tolerance in TOLERANCES.items():
        assert tolerances([f"{name}={tolerance}"], Limits())[name] == tolerance
    assert str(Tolerance()) == "0"


def test_other_hardware_is_not_compared() -> None:
    """Figures of a GPU say nothing about the CPU; another JAX is what one compares."""
    gpu = record({**VERSIONS, "platform": "gpu", "device": "H100"})
    with pytest.raises(BaselineError, match="keep a separate baseline for each"):
        compare(record(), gpu, tolerances((), Limits()))
    newer = record({**VERSIONS, "jax": "0.12.0", "python": "3.13"})
    compare(record(), newer, tolerances((), Limits()))
    compare(record(), record({"jax": "0.10.2"}), tolerances((), Limits()))


def test_why_run_times_are_not_compared_is_said() -> None:
    """With a setting for debugging there are none, and that is no success."""
    f = {"compiles": 1}
    now = record({**VERSIONS, "jax_debug_nans": "True"}, f=f)
    text = " ".join(
        lines(compare(record(f=f), now, tolerances((), Limits())), width=99)
    )
    assert "changed: jax_debug_nans: none → True" in text
    assert "with jax_debug_nans, as in this run, no call is timed" in text
    assert text.endswith("no regression in 1 function; run times are not compared")
    timed = TimedRun(0.0, (), {"f": {"": RunTimes(9, (1.0,) * 5, (1.0,) * 5)}})
    before, after = replace(record(f=f), runs=(timed,)), TimedRun(0.0, (), {})
    lost = compare(before, replace(before, runs=(after,)), tolerances((), Limits()))
    assert lost.untimed.startswith("this run has none: no call took JAX's fast path")


def test_functions_that_come_and_go_are_named() -> None:
    """They are no regressions by themselves; nor is a figure that one side lacks."""
    before = record(f={"compiles": 1, "peak_bytes": 5}, old={"compiles": 1})
    after = record(f={"compiles": 1, "code_bytes": 5}, new={"compiles": 9})
    comparison = compare(before, after, tolerances((), Limits()))
    assert (comparison.new, comparison.vanished) == (("new",), ("old",))
    assert comparison.worse == ()
    shown = list(lines(comparison))
    assert shown[-4:] == [
        "new: new",
        "vanished: old",
        "reported by one side only: peak_bytes, code_bytes",
        "no regression in 1 function",
    ]


def test_table_fits_a_terminal_and_ends_with_what_is_worse() -> None:
    """No line is wider than 80 columns."""
    long = "package." * 30 + "step"
    figures = dict.fromkeys(TOLERANCES, 123456789012345)
    more = dict.fromkeys(TOLERANCES, 987654321098765432)
    hostile = {**VERSIONS, "jax": "0\x1b[2J" * 30}
    many = {f"extra_{i}": {"compiles": 1} for i in range(12)}
    before = Baseline(hostile, {long: figures, "a": {"compiles": 2}, "b\x1b[31m": more})
    after = Baseline(hostile, {long: more, "a": {"compiles": 1}, "b\x1b[31m": figures})
    after = Baseline(after.versions, {**after.functions, **many})
    shown = list(lines(compare(before, after, tolerances((), Limits()))))
    assert max(map(columns, shown)) <= 80
    assert "\x1b" not in "".join(shown)
    assert shown[-1] == f"{len(TOLERANCES)} regressions in 1 of 3 functions"
    names = [line for line in shown if line.startswith(("package", "a", "b\\"))]
    assert names[-1].startswith("package")
    headings = [line for line in shown if line.split()[:1] == ["BASELINE"]]
    assert headings == shown[3:4]
    assert "new: 2 more" in shown
    (row,) = [line for line in shown if line.split()[:2] == ["compiles", "2"]]
    assert row.split() == ["compiles", "2", "1", "-50.0%", "0", "better"]
