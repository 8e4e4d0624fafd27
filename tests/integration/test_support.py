"""The helpers that other tests rely on."""

import http.server
import subprocess
import sys
import threading

import pytest

from tests.helpers import processes, session
from tests.helpers.commands import fits


class _Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(b"toys 3\n")

    def log_message(self, *_):
        pass


@pytest.fixture
def page():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    server.daemon_threads = False
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_prometheus_scrapes_and_answers(prometheus, page, free_port):
    """The fixture's server scrapes its targets and distinguishes up from down."""
    server = prometheus({"toys": [page], "gone": [f"127.0.0.1:{free_port}"]})
    ((labels, value),) = server.until_query('toys{job="toys"}')
    assert (labels["instance"], value) == (page, 3)
    assert server.query("scalar(vector(2)) * 2") == [({}, 4)]
    processes.until(
        lambda: server.targets() == {page: "up", f"127.0.0.1:{free_port}": "down"},
        "both targets to be known",
    )


def test_a_missing_program_skips_unless_in_ci(monkeypatch):
    """A test without its program is skipped by a developer and fails in CI."""
    assert processes.require_program("sh").endswith("/sh")
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no-such-program"):
        processes.require_program("no-such-program")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no-such-program"):
        processes.require_program("no-such-program")


def test_scripts_run_in_a_clean_environment(python_script, run_dir, monkeypatch):
    """A script sees the run directory, the CPU, and no setting of the caller."""
    monkeypatch.setenv("JAXMON_PORT", "1")
    monkeypatch.setenv("XLA_FLAGS", "--nonsense")
    source = (
        "import json, os, sys\n"
        "names = ['JAXMON_PORT', 'JAXMON_RUN_DIR', 'JAX_PLATFORMS', 'XLA_FLAGS', 'A']\n"
        "print(json.dumps([sys.argv[1:], *map(os.environ.get, names)]))\n"
    )
    seen = python_script(source, "x", env={"A": "b"}).json()
    flags = processes.QUICK_COMPILES["XLA_FLAGS"]
    assert seen == [["x"], None, str(run_dir), "cpu", flags, "b"]


def test_waiting_ends_with_an_explanation():
    """A condition that never comes true fails the test, and says what it was."""
    with pytest.raises(AssertionError, match=r"waited 0\.1 s for Godot; last saw \[\]"):
        processes.until(list, "Godot", seconds=0.1)


def test_one_test_of_many_checks_shows_each_that_fails():
    """All cases are checked, and those that fail are named."""
    seen = []

    def check(value, limit):
        """Compare."""
        seen.append(value)
        assert value < limit

    test = processes.each({"one": (1, 2), "two": (2, 2), "three": (3, 2)})(check)
    with pytest.raises(ExceptionGroup, match="check") as failed:
        test()
    assert seen == [1, 2, 3]
    assert [error.__notes__ for error in failed.value.exceptions] == [
        ["in the case two"],
        ["in the case three"],
    ]
    assert test.__doc__ == "Compare."
    processes.each({"one": (1, 2)})(check)()


def test_cpu_seconds_include_processes_that_run_or_ran():
    """A process counts while it runs and after it was waited for."""
    spin = "t = __import__('time'); e = t.process_time() + {}\n"
    spin += "while t.process_time() < e: pass\nprint(flush=True)\ninput()"
    command = [sys.executable, "-c", spin.format(0.5)]
    before = session.spent()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert session.spent() - before > 0.4
        process.communicate(b"\n")
    assert session.spent() - before > 0.4


def test_what_a_document_shows_may_be_broken_elsewhere():
    """Numbers may differ, and lines may break between one and its unit."""
    shown = ["requests take up to 0.24 s.", "...", "80 requests"]
    assert fits(shown, "requests take up to\n  1.2 s.\nother\n7 requests\n")
    assert fits(shown, "requests take up to 0.47\n    s.\n3 requests\n")
    assert not fits(shown, "requests take up to 0.47 KiB.\n3 requests\n")
