"""The leak check: each kind of leak fails the test that made it."""

import re
import subprocess
import sys
from textwrap import dedent

import pytest

from tests.helpers.processes import ROOT, clean_environ


LEAKS = {
    "thread": (
        """
        import threading
        def test_leak():
            threading.Thread(target=threading.Event().wait, daemon=True).start()
        """,
        "is still running",
    ),
    "socket": (
        """
        import socket
        kept = []
        def test_leak():
            kept.append(socket.socket())
        """,
        "is still open: socket:",
    ),
    "file": (
        """
        kept = []
        def test_leak(tmp_path):
            kept.append((tmp_path / "agent-0.lock").open("w"))
        """,
        "agent-0.lock",
    ),
    "patch": (
        """
        import jax
        def test_leak():
            original = jax.jit
            jax.jit = lambda *args, **options: original(*args, **options)
        """,
        "jax.jit is still",
    ),
    "listener": (
        """
        import jax
        def test_leak():
            jax.monitoring.register_event_listener(lambda event, **_: None)
        """,
        "JAX still calls the listener",
    ),
    "registration": (
        """
        import prometheus_client
        def test_leak():
            prometheus_client.Counter("something", "Something.")
        """,
        "prometheus_client.REGISTRY still holds",
    ),
}

LATE = """
def test_leak():
    import jax
    def listen(event, **_): ...
    listen.__module__ = "jaxmon.agent.phases"
    jax.monitoring.register_event_listener(listen)
"""

CLEAN = """
import socket, threading
def test_clean(tmp_path):
    import jax, prometheus_client
    jax.jit(lambda x: x + 1)(1)
    with socket.socket(), (tmp_path / "file").open("w"):
        thread = threading.Thread(target=lambda: None)
        thread.start()
    thread.join()
"""


def run_pytest(directory, **sources):
    """Return the report of a pytest run of modules under our fixtures."""
    for name, source in sources.items():
        (directory / f"test_{name}.py").write_text(source)
    # The grace that a stopping thread gets is of no use here: what leaks, stays.
    quick = "import sys, pytest; from tests.helpers import session as s; "
    return subprocess.run(
        [
            sys.executable,
            "-c",
            f"{quick}s.GRACE_SECONDS = 0.1; sys.exit(pytest.main(sys.argv[1:]))",
            *("-p", "tests.conftest", "-p", "no:cacheprovider", f"--rootdir={ROOT}"),
            *("-c", str(ROOT / "pyproject.toml"), "-rA", str(directory)),
        ],
        cwd=ROOT,
        env=clean_environ(),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    ).stdout


def module_of(kind):
    """Return the source of the test that leaks, under the name of what it leaks."""
    return dedent(LEAKS[kind][0]).replace("test_leak", f"test_leak_of_{kind}")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Return the report on all leaks at once, each in a module of its own."""
    sources = {kind: module_of(kind) for kind in LEAKS}
    return run_pytest(tmp_path_factory.mktemp("leaks"), **sources)


@pytest.mark.parametrize("kind", LEAKS)
def test_a_leak_fails_the_test_that_made_it(report, kind):
    """A test that leaves something behind passes itself and errors at its end."""
    assert_leaked(report, kind)
    count = len(LEAKS)
    assert f"{count} passed, {count} errors in" in report


@pytest.mark.exhaustive
def test_a_listener_that_came_with_jax_fails_its_test(tmp_path):
    """Of what a test imports, only what is ours is a leak."""
    report = run_pytest(tmp_path, late=LATE.replace("leak", "leak_of_late"))
    assert_leaked(report, "late", "JAX still calls the listener")
    assert "1 passed, 1 error in" in report


def assert_leaked(report, kind, message=None):
    """Assert that the test passed, and that its end failed for this reason."""
    assert re.search(rf"^PASSED \S*::test_leak_of_{kind}$", report, re.MULTILINE)
    _, _, after = report.partition(f"ERROR at teardown of test_leak_of_{kind} ")
    section = after.partition("\n____")[0]
    assert "left behind:" in section
    assert (message or LEAKS[kind][1]) in section


def test_a_clean_test_passes(tmp_path):
    """What a test closes again, and what JAX keeps for itself, is no leak."""
    assert "1 passed in" in run_pytest(tmp_path, clean=CLEAN)
