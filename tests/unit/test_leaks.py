"""The leak check: each kind of leak fails the test that made it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support import ROOT, clean_environ


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
    "late listener": (
        """
        def test_leak():
            import jax
            def listen(event, **_): ...
            listen.__module__ = "jaxmon.agent.phases"
            jax.monitoring.register_event_listener(listen)
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


def run_pytest(directory, source):
    """Return the report of a pytest run of *source* under our fixtures."""
    path = directory / "test_inner.py"
    path.write_text(source)
    # The grace that a stopping thread gets is of no use here: what leaks, stays.
    quick = "import sys, pytest; from tests import leaks; leaks.GRACE_SECONDS = 0.1; "
    return subprocess.run(
        [
            sys.executable,
            "-c",
            f"{quick}sys.exit(pytest.main(sys.argv[1:]))",
            *("-p", "tests.conftest", "-p", "no:cacheprovider", f"--rootdir={ROOT}"),
            *("-c", str(ROOT / "pyproject.toml"), str(path)),
        ],
        cwd=ROOT,
        env=clean_environ(),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    ).stdout


@pytest.mark.parametrize("kind", LEAKS)
def test_a_leak_fails_the_test_that_made_it(tmp_path, kind):
    """A test that leaves something behind passes itself and errors at its end."""
    source, message = LEAKS[kind]
    report = run_pytest(tmp_path, "\n".join(line[8:] for line in source.splitlines()))
    assert "1 passed, 1 error" in report
    assert "left behind:" in report
    assert message in report


def test_a_clean_test_passes(tmp_path):
    """What a test closes again, and what JAX keeps for itself, is no leak."""
    assert "1 passed in" in run_pytest(tmp_path, CLEAN)
