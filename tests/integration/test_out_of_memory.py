"""
Memory that runs out for real: counted, reported, and the user's exception as it was.

The address space of a subprocess is limited. Where XLA cannot start a thread it ends
the process instead of raising: these tests leave it room for that.
"""

from __future__ import annotations

import functools
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.helpers import processes
from tests.helpers.preloaded import run_preloaded
from tests.helpers.processes import some


pytestmark = pytest.mark.ground_truth

PROGRAM = processes.ROOT / "tests" / "programs" / "out_of_memory.py"
ENV = {"JAXMON_SOCKET": "0"}

Caught: TypeAlias = Callable[[str], dict[str, Any]]

# How memory runs out: whose call it was, and how far that had come.
SEEN = {
    "trace": ("__main__.allocates_on_host", "trace"),
    "compile": ("__main__.closes_over", "compile"),
    "dispatch": ("__main__.makes_much", "dispatch"),
    "wait_block": ("unknown", "wait"),
    "wait_tree": ("unknown", "wait"),
    "wait_asarray": ("unknown", "wait"),
    "wait_float": ("unknown", "wait"),
}


@pytest.fixture(scope="module")
def caught(tmp_path_factory: pytest.TempPathFactory) -> Caught:
    """
    Return a function that runs the program once for each way to run out of memory.
    """

    @functools.cache
    def once(how: str) -> dict[str, Any]:
        return run(how, "caught", str(tmp_path_factory.mktemp(how) / "new" / "reports"))

    return once


def run(how: str, ending: str, *report_dir: str) -> dict[str, Any]:
    """Run the program and return what it noted."""
    result = run_preloaded(str(PROGRAM), how, ending, *report_dir, env=ENV)
    noted = result.json()
    noted["err"] = result.err
    return dict(noted)


def errors(page: str) -> dict[tuple[str, str], int]:
    """Return the errors on *page* that are not zero, by function and kind."""
    return {
        (sample.labels["function"], sample.labels["kind"]): int(sample.value)
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == "jaxmon_errors_total" and sample.value
    }


def reports(page: str) -> int:
    return next(
        int(sample.value)
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == "jaxmon_oom_reports_total"
    )


@pytest.mark.parametrize("how", some(SEEN, 2))
def test_memory_that_runs_out_is_counted_and_reported(how: str, caught: Caught) -> None:
    """
    At every stage, also where the program catches the error: one count, one report.
    """
    noted = caught(how)
    function, stage = SEEN[how]

    assert errors(noted["page"]) == {(function, "oom"): 1}
    assert reports(noted["page"]) == 1
    assert "jaxmon_internal_errors_total{" not in noted["page"]
    kinds = [kind for kind, *_ in noted["events"]]
    assert kinds == ["error", "oom"]
    (path,) = noted["snapshot"]["oom_reports"]
    report = json.loads(Path(path).read_text(), parse_constant=pytest.fail)
    assert report["failure"]["function"] == function
    assert report["failure"]["stage"] == stage
    assert report["failure"]["message"] == noted["links"][0][1].partition("\n")[0]
    assert report["pid"] > 0
    assert report["versions"]["jax"] == noted["jax"]
    text = Path(path).with_suffix(".txt").read_text()
    assert text.startswith(f"{function} ran out of memory\n")
    assert f"report: {Path(path).with_suffix('.txt')}" in noted["err"]
    assert report["unavailable"] == {}
    assert "unavailable" not in text.lower()


@pytest.mark.parametrize("how", some([*SEEN, "cached"], 2))
def test_the_users_exception_is_as_without_jaxmon(how: str, caught: Caught) -> None:
    """Type, text, notes and every frame are the same, along the whole chain."""
    plain = run(how, "caught")
    observed = caught(how)

    assert plain["links"]
    assert plain["links"] == observed["links"]


@pytest.mark.parametrize(
    ("how", "ending"),
    [
        ("dispatch", "uncaught"),
        ("cached", "thread"),
        *(
            pytest.param(*case, marks=pytest.mark.exhaustive)
            for case in (
                *(("wait_asarray", "uncaught"), ("cached", "uncaught")),
                *(("dispatch", "thread"), ("wait_asarray", "thread")),
            )
        ),
    ],
)
def test_what_nobody_catches_is_counted_once(
    how: str, ending: str, tmp_path: Path
) -> None:
    """
    A cached call fails in C++ with a ValueError, which is seen at the top; what was
    counted on its way is not counted again there.
    """
    noted = run(how, ending, str(tmp_path))

    assert list(errors(noted["page"]).values()) == [1]
    assert reports(noted["page"]) == 1
    (path,) = noted["snapshot"]["oom_reports"]
    report = json.loads(Path(path).read_text())
    assert report["failure"]["kind"] == "oom"
    if how == "cached":
        assert report["failure"]["type"] == "ValueError"
        assert "out_of_memory.py:" in report["failure"]["where"]
        # Sixteen million float32 each, held by the loop in the program.
        assert next(iter(report["live_arrays"]["by_dtype"])) == "float32"
        assert report["live_arrays"]["bytes"] >= 4 * (64 << 20)


def test_a_report_is_for_its_user_only(caught: Caught) -> None:
    """It quotes source lines and messages: mode 0600, in a directory that is 0700."""
    (path,) = map(Path, caught("dispatch")["snapshot"]["oom_reports"])
    directory = path.parent

    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert sorted(found.suffix for found in directory.iterdir()) == [".json", ".txt"]
    for suffix in (".json", ".txt"):
        status = path.with_suffix(suffix).stat()
        assert stat.S_IMODE(status.st_mode) == 0o600
        assert status.st_uid == os.getuid()


def test_the_program_that_asked_is_in_the_report(caught: Caught) -> None:
    """
    A waiting thread does not know whose result it is; the size of the request shows it.
    """
    (path,) = map(Path, caught("wait_block")["snapshot"]["oom_reports"])

    ((function, asked),) = json.loads(path.read_text())["asked"].items()
    assert function == "__main__.needs_much"
    assert asked["temporary_bytes"] > 200 << 20
    assert "The program of __main__.needs_much needs 2" in " ".join(
        path.with_suffix(".txt").read_text().split()
    )
