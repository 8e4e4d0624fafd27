"""The plugin for pytest, in a pytest of its own as its users run it."""

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from tests.helpers.preloaded import run_preloaded
from tests.helpers.processes import Result, run_python


Run = Callable[..., Result]

TESTS = """
import jax, jax.numpy as jnp, numpy as np, pytest

step = jax.jit(lambda x: x * 2)

def ones(length):
    return np.ones(length, np.float32)
"""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a function that runs pytest on the source of a test module."""

    def run(source: str, *options: str, **env: str) -> Result:
        (tmp_path / "test_it.py").write_text(TESTS + dedent(source))
        # Without what other plugins import.
        others = ("-p", "no:anyio", "-p", "no:cacheprovider", "-p", "no:jaxtyping")
        arguments = ("-m", "pytest", "-q", *others, *options)
        return run_preloaded(*arguments, cwd=tmp_path, env=env)

    return run


def outcomes(result: Result) -> str:
    """Return how many passed and failed, from pytest's last line."""
    return result.out.splitlines()[-1].partition(" in ")[0]


def test_marked_test_fails_with_the_cause(run: Run) -> None:
    """A test over its mark fails, and says why."""
    result = run(
        """
        @pytest.fixture
        def warm():
            step(ones(3))

        @pytest.mark.jaxmon_budget(compiles=0, recompiles=0)
        def test_hits(warm):
            step(ones(3))

        @pytest.fixture
        def warmed():
            step(ones(4))

        @pytest.mark.jaxmon_budget(recompiles=0)
        def test_recompiles(warmed):
            step(ones(5))
        """,
        "--strict-markers",
    )
    assert result.code == 1
    assert outcomes(result) == "1 failed, 1 passed"
    assert "recompiles: 1 (allowed: 0)" in result.out
    assert "test_it.<lambda>: shape 1\n    argument x: float32[4] → float32[5]" in (
        result.out
    )
    assert "Traceback" not in result.out
    assert "budget.py" not in result.out


def test_nearest_mark_wins_figure_by_figure(run: Run) -> None:
    """Marks of the module and the class hold where the test's own says nothing."""
    result = run(
        """
        pytestmark = pytest.mark.jaxmon_budget(compiles=0, transfers=None)

        @pytest.mark.jaxmon_budget(recompiles=0)
        class TestClass:
            def test_module(self):
                jax.jit(lambda x: x + 1)(ones(3))

            @pytest.mark.jaxmon_budget(compiles=2)
            def test_class(self):
                step(ones(3)), step(ones(4))

            @pytest.mark.jaxmon_budget(compiles=2, recompiles=1)
            def test_own(self):
                step(ones(5)), step(ones(6))

            @pytest.mark.jaxmon_budget(compiles=None, recompiles=None)
            def test_unlimited(self):
                step(ones(7)), step(ones(8))
        """,
        "-rA",
    )
    assert outcomes(result) == "3 failed, 1 passed"
    assert "PASSED test_it.py::TestClass::test_unlimited" in result.out
    for name, words in {
        "test_module": "compiles: 1 (allowed: 0)",
        "test_class": "recompiles: 1 (allowed: 0)",
        "test_own": "recompiles: 2 (allowed: 1)",
    }.items():
        section = result.out.partition(f"_ TestClass.{name} _")[2]
        assert words in section.splitlines()[1]


def test_failure_of_the_test_is_shown_alone(run: Run) -> None:
    """A test's own failure, or inner budget, comes first."""
    result = run(
        """
        import jaxmon

        @pytest.mark.jaxmon_budget(compiles=0)
        def test_fails():
            step(ones(3))
            assert "mine" == "yours"

        @pytest.mark.jaxmon_budget(compiles=5)
        def test_inner():
            with jaxmon.budget(compiles=0):
                jax.jit(lambda x: x + 1)(ones(3))

        @pytest.mark.jaxmon_budget(compiles=0)
        def test_skips():
            step(ones(9))
            pytest.skip("not today")
        """
    )
    assert outcomes(result) == "2 failed, 1 skipped"
    assert "assert 'mine' == 'yours'" in result.out
    assert ">           with jaxmon.budget(compiles=0):" not in result.out
    assert "BudgetExceeded: compiles: 1 (allowed: 0)" in result.out
    assert "@pytest.mark.jaxmon_budget:" not in result.out


def test_test_case_of_unittest_can_be_marked(run: Run) -> None:
    """Marks work on methods of `unittest.TestCase`."""
    result = run(
        """
        import unittest

        class Case(unittest.TestCase):
            @pytest.mark.jaxmon_budget(compiles=0)
            def test_it(self):
                step(ones(3))
        """
    )
    assert outcomes(result) == "1 failed"
    assert "compiles: 1 (allowed: 0)" in result.out


def test_wrong_marks_fail_their_test(run: Run) -> None:
    """A mark that cannot be used is said in a line, and does not pass unnoticed."""
    wrong = {
        "1": "takes keyword arguments such as compiles=1, not (1,)",
        "compiles=-1": "compiles=-1 is not a valid limit; give a whole number",
        "compile=1": "unexpected keyword argument 'compile'",
    }
    tests = (
        f"@pytest.mark.jaxmon_budget({mark})\ndef test_{number}(): pass\n"
        for number, mark in enumerate(wrong)
    )
    result = run("".join(tests))
    assert outcomes(result) == "3 failed"
    for number, message in enumerate(wrong.values()):
        section = result.out.partition(f"_ test_{number} _")[2].partition("\n___")[0]
        assert f"@pytest.mark.jaxmon_budget: {message}" in section.replace(
            "budget() got an ", ""
        )


REPORTED = """
    @pytest.fixture
    def many():
        for length in range(3, 6):
            step(ones(length))

    def test_many(many):
        pass

    def test_one():
        step(ones(9))

    def test_none():
        pass
    """


@pytest.mark.parametrize(
    "options",
    [
        pytest.param((), id="alone"),
        pytest.param(("-n2",), id="xdist", marks=pytest.mark.exhaustive),
    ],
)
def test_report_names_the_tests_that_compile_most(run, tmp_path, options):
    """Fixtures included, most first, from workers too; also in the XML of JUnit."""
    words = ("--jaxmon-report=1", "--junitxml=junit.xml")
    result = run(REPORTED, *words, *options).ok()
    report = result.out.partition("jaxmon: tests with the most compiles")[2]
    lines = report.splitlines()[1:4]
    assert lines[0].startswith("4 compiles in ")
    assert lines[0].endswith("in 2 of 3 tests")
    assert lines[1].split() == ["COMPILES", "RECOMPILES", "SECONDS", "TEST"]
    compiles, recompiles, seconds, test = lines[2].split()
    assert (compiles, recompiles, test) == ("3", "2", "test_it.py::test_many")
    assert float(seconds) > 0
    assert "test_one" not in report
    case = ET.parse(tmp_path / "junit.xml").find(".//testcase[@name='test_many']")  # noqa: S314 - written by pytest
    assert case is not None
    found = {one.get("name"): one.get("value") for one in case.iter("property")}
    assert found["jaxmon_compiles"] == "3"
    assert found["jaxmon_recompiles"] == "2"


@pytest.mark.exhaustive
def test_report_by_ini_file_and_its_absence(run: Run, tmp_path: Path) -> None:
    """The ini file turns it on, the command line off; by default there is none."""
    title = "tests with the most compiles"
    assert title not in run(REPORTED).ok().out
    (tmp_path / "pytest.ini").write_text("[pytest]\njaxmon_report = 5\n")
    assert title in run(REPORTED).ok().out
    assert title not in run(REPORTED, "--jaxmon-report=0").ok().out
    refused = run(REPORTED, "--jaxmon-report=few")
    assert refused.code == 4
    assert "--jaxmon-report=few is not a valid number of tests" in refused.err


def test_report_survives_tests_that_stop_the_agent(run: Run) -> None:
    """Tests after it are counted nevertheless."""
    source = """
        import jaxmon

        def test_stops():
            step(ones(3))
            jaxmon.uninstrument()

        def test_after():
            step(ones(4))
        """
    out = run(source, "--jaxmon-report").ok().out
    assert "1 compiles in" in out
    assert "test_it.py::test_after" in out.partition("COMPILES")[2]


UNUSED = """
    import json, sys

    def test_it():
        loaded = [n for n in sys.modules if n.partition(".")[0] in ("jax", "jaxmon")]
        print(json.dumps(sorted(loaded)))
    """


@pytest.mark.exhaustive
def test_plugin_is_light(tmp_path: Path) -> None:
    """Where nothing is marked, pytest loads only the plugin."""
    (tmp_path / "test_it.py").write_text(dedent(UNUSED))
    command = ("-m", "pytest", "-q", "-s", "-p", "no:cacheprovider")
    result = run_python(*command, cwd=tmp_path).ok()
    assert json.loads(result.out.splitlines()[0].rstrip(".")) == [
        "jaxmon",
        "jaxmon.testing",
        "jaxmon.testing.plugin",
    ]
    result = run_python(*command, "--jaxmon-report", cwd=tmp_path).ok()
    assert "0 compiles in 0.0 s, in 0 of 1 tests" in result.out
    assert '"jax"' not in result.out
    assert '"jaxmon.agent"' not in result.out


def test_plugin_is_no_news_within_jaxmon_run(tmp_path: Path) -> None:
    """It is no reason for a warning of pytest's."""
    info = tmp_path / "site" / "installed-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: installed\n")
    (info / "entry_points.txt").write_text("[pytest11]\ninstalled = installed\n")
    (info / "RECORD").write_text("jaxmon/__init__.py,,\n")
    (tmp_path / "site" / "installed.py").write_text("")
    (tmp_path / "test_it.py").write_text("def test_it(): pass\n")
    pytest_ = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error")
    result = run_python(
        *("-m", "jaxmon", "run", "--no-tcp", *pytest_),
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "site")},
    ).ok()
    assert outcomes(result) == "1 passed"


def test_our_modules_are_not_rewritten(run: Run) -> None:
    """Under pytest, jaxmon is imported as elsewhere."""
    result = run(
        """
        def test_it():
            import jaxmon.agent.guard, jaxmon_exporter.polling
            for module in (jaxmon.agent.guard, jaxmon_exporter.polling):
                print(type(module.__loader__).__name__)
        """,
        "-s",
    ).ok()
    assert "SourceFileLoader\nSourceFileLoader\n" in result.out


@pytest.mark.exhaustive
def test_options_and_mark_are_documented_by_pytest(tmp_path: Path) -> None:
    """``pytest --help`` and ``--markers`` list them."""
    assert "--jaxmon-report" in run_python("-m", "pytest", "-h", cwd=tmp_path).ok().out
    markers = run_python("-m", "pytest", "--markers", cwd=tmp_path).ok().out
    assert "@pytest.mark.jaxmon_budget(compiles=None" in markers
