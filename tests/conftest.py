"""
Fixtures for every test, and the two rules that hold for all of them: nothing is
left behind, and a failure inside jaxmon fails the test.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.nvml.build import build
from tests.helpers import processes, session
from tests.helpers.indicators import Recorded, recording
from tests.helpers.preloaded import run_preloaded
from tests.helpers.processes import Result
from tests.helpers.prometheus import Prometheus, Webhook
from tests.helpers.session import CpuSeconds


# Tests run on the CPU unless the caller chose otherwise; set before JAX is loaded.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Most of what tests compile runs once; see the mark ``optimised``.
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
# XLA reads its flags once in a process: this holds for what is marked, too.
if processes.NO_FUSION_EMITTERS:
    os.environ.setdefault("XLA_FLAGS", processes.NO_FUSION_EMITTERS)
# Programs in Go, such as Prometheus, are short-lived here and share two processors:
# they need not tidy up, nor run several threads.
os.environ.setdefault("GOGC", "off")
os.environ.setdefault("GOMEMLIMIT", "600MiB")
os.environ.setdefault("GOMAXPROCS", "1")

# A shell has what it starts in the background ignore Ctrl-C, and nohup hangups. What
# tests start would inherit that, and not end when it is told to.
for _number, _handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add our options."""
    parser.addoption(
        "--cpu-seconds",
        action="store_true",
        help="print the CPU seconds of each file, subprocesses included",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Measure if asked to. Until all is imported, there is no garbage to look for."""
    gc.disable()
    if config.getoption("cpu_seconds"):
        config.pluginmanager.register(CpuSeconds())


def pytest_collection_finish() -> None:
    """Keep thousands of collected tests out of every later collection of garbage."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Have XLA optimise for what is marked ``optimised``, its fixtures included."""
    optimised = item.get_closest_marker("optimised") is not None
    if optimised or "jax" in sys.modules:
        import jax

        jax.config.update("jax_disable_most_optimizations", not optimised)


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Fail a test that leaves a thread, descriptor, patch, listener or registration."""
    before = session.snapshot()
    yield
    if found := session.leaked(before):
        pytest.fail("left behind:\n  " + "\n  ".join(found), pytrace=False)


@pytest.fixture(autouse=True)
def failures_escape(
    request: pytest.FixtureRequest, nothing_left_behind: None
) -> Iterator[None]:
    """Make jaxmon raise what it would contain, except in tests marked ``contained``."""
    with ExitStack() as stack:
        if not request.node.get_closest_marker("contained"):
            from jaxmon.agent import guard

            stack.enter_context(guard.strict())
        yield


@pytest.fixture
def free_port() -> int:
    """Return an unused TCP port of the loopback interface."""
    return processes.free_port()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Return a stack, unwound after the test."""
    with ExitStack() as found:
        yield found


@pytest.fixture
def run_dir(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """
    Return an empty run directory and make it the default, also of subprocesses.

    Its path is short: a Unix socket's has at most 106 bytes, and tmp_path is long.
    """
    path = Path(tempfile.mkdtemp(prefix="jm-", dir="/tmp"))
    monkeypatch.setenv("JAXMON_RUN_DIR", str(path))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of the compiled fake NVML."""
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def python_script(tmp_path: Path, run_dir: Path) -> Callable[..., Result]:
    """
    Return a function that runs Python source in a fresh process; see `run_python`.
    """

    def run(source: str, *args: str, **options: Any) -> Result:
        path = tmp_path / "script.py"
        path.write_text(source)
        return processes.run_python(str(path), *args, run_dir=run_dir, **options)

    return run


@pytest.fixture
def preloaded_script(tmp_path: Path, run_dir: Path) -> Callable[..., Result]:
    """Return a function that runs Python source; see `run_preloaded`."""

    def run(source: str, *args: str, **options: Any) -> Result:
        path = tmp_path / "script.py"
        path.write_text(source)
        return run_preloaded(str(path), *args, run_dir=run_dir, **options)

    return run


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[Callable[..., Prometheus]]:
    """Return a function that starts a real Prometheus; see `Prometheus`."""
    with ExitStack() as stack:

        def start(targets: dict[str, list[str]], **options: Any) -> Prometheus:
            directory = Path(tempfile.mkdtemp(prefix="prometheus-", dir=tmp_path))
            return stack.enter_context(Prometheus(directory, targets, **options))

        yield start


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    with Webhook() as running:
        yield running


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    """Return what is recorded while the test runs."""
    with recording() as found:
        yield found
