"""
Run another project's test suite with and without jaxmon, and compare test by test.

    python tools/third_party.py optax
    python tools/third_party.py equinox --source ../equinox -- -k jit
    python tools/third_party.py jax --source ../jax

The suite is that of the installed version, from its source distribution, or from
--source, a checkout of that version, where the distribution holds no tests. Both runs
are one process each, in the same order; arguments after -- go to pytest. Any test with
another outcome makes the exit code 1.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from importlib import util
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree as ET  # the suites' own reports are trusted


ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "third-party"
DOWNLOAD_SECONDS = 600

PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider")
# Other orders and other processes would be other suites; a plug-in that is not
# installed is none to switch off.
ONE_ORDER = ("-p", "no:randomly", "-p", "no:xdist")
WAYS = {"without": (), "with jaxmon": ("-m", "jaxmon", "run", "--port", "0")}


@dataclass(frozen=True)
class Suite:
    """
    Where a project keeps its tests, and what they need.

    Attributes:
        tests: files or directories, relative to the project's root.
        needs: modules that the tests import and the project does not require.
        options: for pytest.
    """

    tests: tuple[str, ...]
    needs: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


# Without it, nothing would be instrumented in a suite that does not import JAX.
_WITH_JAX = ("-p", "jax")

SUITES = {
    "beartype": Suite(
        ("beartype_test/a00_unit/a60_decor", "beartype_test/a00_unit/a90_claw"),
        options=_WITH_JAX,
    ),
    "cloudpickle": Suite(
        ("tests/cloudpickle_test.py",),
        needs=("psutil",),
        options=_WITH_JAX,
    ),
    "joblib": Suite(
        tuple(
            f"joblib/test/test_{name}.py"
            for name in ("func_inspect", "hashing", "memory")
        ),
        # The tests lie in the package, which is imported from its installation.
        options=("--import-mode=importlib", *_WITH_JAX),
    ),
    "optax": Suite(
        ("optax",),
        needs=("flax", "scipy", "sklearn"),
        # The tests lie in the package, which is imported from its installation.
        options=("--import-mode=importlib",),
    ),
    "equinox": Suite(
        ("tests",),
        needs=("beartype", "jaxtyping", "optax"),
        # They compare wall-clock times; on a busy machine they fail now and then.
        options=("-k", "not test_speed_"),
    ),
    "jax": Suite(
        (
            "tests/api_test.py",
            "tests/aot_test.py",
            "tests/cache_key_test.py",
            "tests/compilation_cache_test.py",
            "tests/custom_api_test.py",
            "tests/debug_nans_test.py",
            "tests/errors_test.py",
            "tests/jax_jit_test.py",
            "tests/monitoring_test.py",
            "tests/pickle_test.py",
        ),
        needs=("absl", "cloudpickle"),
        # The other mode would import JAX itself from the checkout.
        options=("--import-mode=importlib",),
    ),
}


@dataclass(frozen=True)
class Run:
    """What one run gave."""

    outcomes: dict[str, str]
    seconds: float
    output: str

    @property
    def totals(self) -> Counter[str]:
        """Tests by outcome."""
        return Counter(self.outcomes.values())


def main() -> int:
    """Run one suite both ways and return the exit code."""
    arguments_of_ours, options = _split(sys.argv[1:])
    parser = argparse.ArgumentParser(
        description="Compare a project's tests with and without jaxmon.",
        epilog="Arguments after -- go to pytest.",
    )
    parser.add_argument("project", choices=SUITES)
    parser.add_argument("--source", type=Path, help="a checkout of this version")
    parser.add_argument("--timeout", type=float, default=3600, help="seconds for a run")
    arguments = parser.parse_args(arguments_of_ours)
    suite = SUITES[arguments.project]
    if missing := [name for name in suite.needs if util.find_spec(name) is None]:
        print(f"the tests of {arguments.project} import {', '.join(missing)}: install")
        return 1
    source = arguments.source or download(arguments.project)
    tests = [str(path) for path in map(source.resolve().joinpath, suite.tests)]
    if not any(Path(test).exists() for test in tests):
        print(
            f"{source} holds no {' or '.join(suite.tests)}; give a checkout of "
            f"{arguments.project} {version(arguments.project)} with --source"
        )
        return 1
    # Named, for pytest would take ours where a suite has no configuration.
    config = ("-c", str(source.resolve() / "pyproject.toml"))
    runs: dict[str, Run] = {}
    for way, launcher in WAYS.items():
        runs[way] = run(
            [*launcher, *PYTEST, *ONE_ORDER, *config, *suite.options, *tests, *options],
            arguments.timeout,
        )
        print(f"{way}: {_words(runs[way])}", flush=True)
    return report(arguments.project, runs)


def download(project: str) -> Path:
    """Return the unpacked source distribution of the installed version."""
    wanted = version(project)
    directory = CACHE / f"{project}-{wanted}"
    if not directory.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        options = ("--quiet", "--no-deps", "--no-binary", ":all:", "--dest", str(CACHE))
        subprocess.run(
            [sys.executable, "-m", "pip", "download", *options, f"{project}=={wanted}"],
            timeout=DOWNLOAD_SECONDS,
            check=True,
        )
        with tarfile.open(CACHE / f"{project}-{wanted}.tar.gz") as archive:
            archive.extractall(CACHE, filter="data")
    return directory


def run(command: list[str], timeout: float) -> Run:
    """
    Return what pytest, started by *command*, reported.

    It runs in an empty directory, for Python would import a package from its own.

    Raises:
        subprocess.TimeoutExpired: it took longer than *timeout* seconds.
    """
    with tempfile.TemporaryDirectory() as temporary:
        results = Path(temporary) / "results.xml"
        started = time.monotonic()
        finished = subprocess.run(
            [sys.executable, *command, f"--junitxml={results}"],
            cwd=temporary,
            env={**os.environ, "JAXMON_RUN_DIR": temporary, "PYTHONHASHSEED": "0"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
            check=False,
        )
        seconds = time.monotonic() - started
        found = outcomes(results) if results.exists() else {}
    # 0 and 1: every test ran, or some failed. Else there is nothing to compare.
    if not found or finished.returncode > 1:
        print(f"{shlex.join(command)} did not run:\n{finished.stdout[-4000:]}")
        sys.exit(1)
    return Run(found, seconds, finished.stdout)


def outcomes(results: Path) -> dict[str, str]:
    """Return the outcome of each test in a JUnit file."""
    found: dict[str, str] = {}
    for case in ET.parse(results).iter("testcase"):  # noqa: S314 - pytest wrote it
        name = f"{case.get('classname')}::{case.get('name')}"
        # Generated tests may share a name.
        repeated = 1
        while (key := name if repeated == 1 else f"{name} #{repeated}") in found:
            repeated += 1
        found[key] = _outcome(case)
    return found


def _outcome(case: ET.Element) -> str:
    for kind, word in (("error", "error"), ("failure", "failed")):
        if case.find(kind) is not None:
            return word
    skipped = case.find("skipped")
    if skipped is None:
        return "passed"
    return "xfailed" if skipped.get("type") == "pytest.xfail" else "skipped"


def report(project: str, runs: dict[str, Run]) -> int:
    """Print totals and differences; return the exit code."""
    first, second = runs.values()
    kinds = sorted(first.totals | second.totals)
    print(f"\n{project} {version(project)}, JAX {version('jax')}")
    print(f"{'':14}" + "".join(f"{kind:>10}" for kind in ("tests", *kinds, "seconds")))
    for way, one in runs.items():
        figures = (len(one.outcomes), *(one.totals[kind] for kind in kinds))
        cells = "".join(f"{figure:10,}" for figure in figures)
        print(f"{way:14}{cells}{one.seconds:10.0f}")
    differing = [
        name
        for name in sorted(first.outcomes.keys() | second.outcomes.keys())
        if first.outcomes.get(name) != second.outcomes.get(name)
    ]
    for name in differing:
        without, with_jaxmon = (
            one.outcomes.get(name, "not run") for one in (first, second)
        )
        print(f"{name}: {without}, with jaxmon {with_jaxmon}")
    if differing:
        print(f"\n{second.output[-8000:]}")
    print(f"{len(differing)} tests differ")
    return bool(differing)


def _words(one: Run) -> str:
    totals = ", ".join(f"{count} {kind}" for kind, count in sorted(one.totals.items()))
    return f"{totals} in {one.seconds:.0f} s"


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


if __name__ == "__main__":
    sys.exit(main())
