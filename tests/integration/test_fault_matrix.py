"""A quick selection of the fault matrix; ``make faults`` runs all of it."""

import re
from pathlib import Path

import pytest

from tests.faults import rows
from tests.faults.matrix import Row, run, run_all, table
from tests.faults.stage import Stage, Unexpected
from tests.helpers.processes import ROOT, some


QUICK = [row for row in rows.ALL if row.quick]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where the fake driver's library is built, once."""
    return tmp_path_factory.mktemp("library")


@pytest.mark.parametrize("row", some(QUICK, 2), ids=lambda row: row.name)
def test_row(row: Row, driver: Path) -> None:
    """What breaks shows on the page, costs nothing else, and is whole again."""
    outcome = run(row, driver)
    if outcome.skipped:
        pytest.skip(outcome.skipped)
    assert not outcome.failed, outcome


def test_names_are_unique_and_documented() -> None:
    """A row can be chosen by its name, and the document has each, in this order."""
    names = [row.name for row in rows.ALL]
    assert len(set(names)) == len(names) >= 30
    text = (ROOT / "tests" / "faults" / "RESULTS.md").read_text()
    assert re.findall(r"(?m)^\| (\w\S*: .*?) \|", text) == names


def test_what_is_not_as_expected_fails_its_row(tmp_path: Path) -> None:
    """A wrong expectation, a crash and a missing program are distinguished."""

    def wrong(stage: Stage) -> None:
        stage.expect(1 + 1 == 2, "sums")
        stage.expect(1 + 1 == 3, "pigs fly")

    def crash(_: Stage) -> None:
        msg = "a | b"
        raise RuntimeError(msg)

    def absent(_: Stage) -> None:
        pytest.skip("no such thing here")

    chosen = [Row("test", play.__name__, play) for play in (wrong, crash, absent)]
    seen: list[str] = []
    outcomes = run_all(
        chosen, tmp_path, jobs=2, done=lambda row, _: seen.append(row.broken)
    )
    assert outcomes[0].failed == "Unexpected: not so: pigs fly"
    assert outcomes[0].said == "sums"
    assert outcomes[1].failed == "RuntimeError: a | b"
    assert outcomes[2].skipped == "no such thing here"
    assert sorted(seen) == ["absent", "crash", "wrong"]
    text = table(chosen, outcomes)
    assert "**FAILED** RuntimeError: a / b" in text
    assert "| test: absent | not tried: no such thing here |" in text


def test_waiting_ends() -> None:
    """What never shows up is an error that names it."""
    with Stage() as stage, pytest.raises(Unexpected, match=r"0\.1 s for pigs"):
        stage.until(lambda: False, "pigs", 0.1)
