"""`jaxmon top` on a real terminal, beside real processes: every key, and every end."""

import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from jaxmon.cli.top.state import KEYS, ORDERS
from tests.helpers.preloaded import Program, start_preloaded
from tests.helpers.processes import Console, clean_environ, console, until
from tests.helpers.sidecars import exporters


SERVES = """
import itertools, time
import jaxmon
jaxmon.instrument(port=None)
import jax
double = jax.jit(lambda x: x * 2)
print("ready", flush=True)
for number in itertools.count():
    try:
        with jaxmon.request("predict"):
            double(1.0)
            time.sleep(0.02)
            if number % 2:
                raise ValueError
    except ValueError:
        pass
"""
# With a name that would take over a terminal, and one that is twice as wide.
TRAINS = """
import itertools, time
import jaxmon
jaxmon.instrument(port=None)
print("ready", flush=True)
jaxmon.queue("\\x1b]0;owned\\x07\\x1b[2J", lambda: 3)
for _ in jaxmon.steps(itertools.count(), loop="日本"):
    time.sleep(0.05)
"""
UP, DOWN, RIGHT, LEFT = "\x1b[A", "\x1b[B", "\x1b[C", "\x1b[D"
PAGE_UP, PAGE_DOWN, HOME, END = "\x1b[5~", "\x1b[6~", "\x1b[H", "\x1b[F"
BEGINS, RESTORES = b"\x1b[?1049h", b"\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"


@contextmanager
def running(
    directory: Path, run_dir: Path, name: str, source: str
) -> Iterator[Program]:
    (directory / name).write_text(source)
    with start_preloaded(
        name, cwd=directory, environ=clean_environ(run_dir), stdout=PIPE
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a run directory with a failing server and a training."""
    scripts = tmp_path_factory.mktemp("place")
    path = Path(tempfile.mkdtemp(prefix="jm-", dir="/tmp"))
    with (
        running(scripts, path, "serve.py", SERVES),
        running(scripts, path, "train.py", TRAINS),
    ):
        yield path
    shutil.rmtree(path, ignore_errors=True)


@contextmanager
def top(place: Path, *options: str, **given: Any) -> Iterator[Console]:
    environ = clean_environ(place, **given.pop("environ", {}))
    arguments = ("-m", "jaxmon", "top", "--every", "0.5", *options)
    with console(arguments, environ, **given) as screen:
        yield screen


def chosen(screen: Console) -> str:
    """Return the slot of the process that is marked."""
    lines = screen.lines()
    rows = [
        number
        for number in range(len(lines) - 1)
        if any(is_reversed for _, is_reversed in screen.styles(number))
    ]
    return lines[rows[0]].split()[0] if rows else ""


def ends_restored(screen: Console) -> bool:
    screen.lines()
    return screen.output.endswith(RESTORES) and screen.is_restored


def until_chosen(screen: Console, number: str) -> None:
    until(lambda: chosen(screen) == number, f"process {number} to be marked")


def test_every_key_does_what_it_is_for(place: Path) -> None:  # noqa: PLR0915 - keys
    """Keys choose, sort, pause, open, scroll and quit."""
    with top(place) as screen:
        # Of the first requests, hardly any have failed.
        text = screen.shows(
            "No: ", "requests to predict failed", "train.py", " req/s", "steps/s"
        )
        lines = text.splitlines()
        assert lines[0].startswith("jaxmon top · ")
        assert "2 processes" in lines[0]
        assert lines[1].startswith("Are users all right? No: ")
        screen.shows("ValueError at serve.py:14")
        assert any(line.split()[:2] == ["WORKER", "PID"] for line in lines)
        assert len(screen.lines()) == 24
        assert "q quit" in lines[23]
        until_chosen(screen, "0")
        for key, number in (
            *((DOWN, "1"), (UP, "0"), ("j", "1"), ("k", "0"), (END, "1")),
            *(
                (HOME, "0"),
                (PAGE_DOWN, "1"),
                (PAGE_UP, "0"),
                ("\x1bOB", "1"),
                ("k", "0"),
            ),
        ):
            screen.press(key)
            until_chosen(screen, number)
        names = list(ORDERS)
        for name in (*names[1:], names[0]):
            screen.press("s")
            screen.shows(f"sort: {name} ")
        screen.press("S")
        screen.shows(f"sort: {names[-1]} ")
        screen.press("r")
        screen.shows(f"sort: {names[-1]}, reversed")
        screen.press("rs")
        screen.shows("sort: worst first ")
        screen.press(" ")
        screen.shows("paused at ")
        screen.press(" ")
        screen.hides("paused at ")
        screen.press("?")
        text = screen.shows("Keys", *(what for _, what in KEYS))
        screen.press("x")
        screen.shows("WORKER")
        for enter, back in (("\r", "\x1b"), (RIGHT, LEFT), ("l", "h"), ("\n", "\x7f")):
            screen.press(enter)
            text = screen.shows("worker 0 · pid ", "serve.py", "FINDINGS", "REQUESTS")
            assert "No: " in text
            screen.press(back)
            screen.shows("WORKER")
        screen.press("\r")
        screen.shows("worker 0 · pid ")
        screen.resize(80, 16)
        screen.shows("more lines below")
        screen.press(END)
        screen.hides("more lines below")
        screen.press(HOME)
        screen.shows("more lines below")
        screen.press(PAGE_DOWN + UP + DOWN + PAGE_DOWN + PAGE_DOWN)
        screen.hides("more lines below")
        screen.resize(80, 24)
        screen.press("n")
        text = screen.shows("worker 1 · pid ", "STEPS", "QUEUES")
        screen.press("p")
        screen.shows("worker 0 · pid ")
        screen.press("\x0c")
        screen.shows("worker 0 · pid ")
        assert BEGINS in screen.output
        screen.press("q")
        assert screen.end() == 0
        assert screen.output.endswith(RESTORES)
        assert screen.is_restored


def test_text_of_programs_is_harmless(place: Path) -> None:
    """Escape sequences are spelled out, and Ctrl-C restores all."""
    with top(place, lines=50) as screen:
        screen.shows("train.py")
        screen.press("s" + END + "\r")
        text = screen.shows("worker 1 · pid ", r"\x1b]0;owned", "STEPS")
        screen.press("\x03")
        assert screen.end() == 130
        assert screen.is_restored

    assert screen.output.endswith(RESTORES)
    unwritten = screen.output.replace(BEGINS, b"").replace(RESTORES, b"")
    assert b"\x1b]" not in unwritten
    assert b"\x07" not in unwritten
    line = next(one for one in text.splitlines() if "日" in one and "second" not in one)
    wide = sum(unicodedata.east_asian_width(one) in "WF" for one in line)
    # The screen has a column for the second half of each.
    assert len(line.replace(" ", "")) >= wide


def test_a_failure_restores_the_terminal_first(place: Path) -> None:
    """A traceback of ours is readable, on the screen that was there before."""
    broken = (
        "from jaxmon.cli.top import views\n"
        "views.host_view = lambda *_, **__: 1 / 0\n"
        "from jaxmon.cli.main import main\n"
        "main(['top'])"
    )
    with console(("-c", broken), clean_environ(place)) as screen:
        assert screen.end() == 1
        assert screen.is_restored
    _, _, after = screen.output.partition(RESTORES)
    assert b"ZeroDivisionError" in after


def test_it_can_be_suspended(place: Path) -> None:
    """Ctrl-Z gives the terminal back, to continue draws anew; so does a hangup."""
    with top(place) as screen:
        screen.shows("WORKER")
        screen.press("\x1a")
        until(lambda: ends_restored(screen), "the terminal back")
        assert screen.is_restored
        screen.process.send_signal(signal.SIGCONT)
        until(lambda: screen.text() and not screen.is_restored, "the screen back")
        screen.shows("WORKER", "train.py")
        screen.process.send_signal(signal.SIGHUP)
        assert screen.end() == 129
        assert ends_restored(screen)


def test_any_size_is_used(place: Path) -> None:
    """Everything is drawn for a new size, however small; SIGTERM restores all."""
    with top(place) as screen:
        screen.shows("WORKER", "train.py")
        for columns, lines, expected in (
            (132, 40, ("MEMORY", "COMPILES", "train.py")),
            (50, 12, ("WORKER", "train.py")),
            (20, 6, ("jaxmon", "q quit")),
            (3, 2, ()),
            (80, 24, ("WORKER", "train.py", "steps/s")),
        ):
            screen.resize(columns, lines)
            screen.shows(*expected)
        # Nothing was written beyond the last column or line.
        shown = screen.text().splitlines()
        assert shown[0].startswith("jaxmon top")
        assert "q quit" in shown[23]
        screen.process.send_signal(signal.SIGTERM)
        assert screen.end() == 143
        assert ends_restored(screen)


@pytest.mark.parametrize(
    ("environ", "has_colours"),
    [({}, True), ({"NO_COLOR": "1", "TERM": "vt220"}, False)],
)
def test_colours_can_be_done_without(place, environ, has_colours):
    """Without colours, words say the same."""
    with top(place, environ=environ) as screen:
        screen.shows("No: ", "requests to predict failed", "train.py")
        screen.press("q")
        screen.end()
    codes = re.findall(rb"\x1b\[([0-9;]*)m", screen.output)
    coloured = [one for one in codes if re.search(rb"(^|;)3[0-7]", one)]
    assert bool(coloured) == has_colours


def test_a_refresh_takes_few_bytes(place: Path) -> None:
    """Only what changed is sent, less than a tenth of the screen."""
    with top(place) as screen:
        screen.shows("requests to predict failed", "train.py", "steps/s")
        before, times = len(screen.output), set[str]()
        whole = 24 * 80

        def ten() -> bool:
            times.add(screen.lines()[0].split()[-1])
            return len(times) > 10

        until(ten, "ten refreshes")
        sent = len(screen.output) - before
        screen.press("q")
        screen.end()
    # Two readings for each change of the clock.
    assert sent / 20 < whole / 10


def test_a_process_that_ends_stays_readable(place: Path, tmp_path: Path) -> None:
    """What it did last stays while it is open."""
    with running(tmp_path, place, "dies.py", SERVES) as process, top(place) as screen:
        screen.shows("dies.py")
        screen.press("s" + END + "\r")
        screen.shows(f"worker 2 · pid {process.pid}", "REQUESTS")
        process.kill()
        text = screen.shows("It has crashed. Below is what it did at ")
        assert "predict" in text
        assert f"pid {process.pid}" in text
        with running(tmp_path, place, "next.py", TRAINS) as successor:
            screen.shows(f"pid {successor.pid}", "next.py")
            successor.kill()
            successor.wait()
        screen.press("\x1b")
        screen.shows("WORKER", "crashed")
        screen.press("q")
        assert screen.end() == 0


def test_a_process_that_hangs_does_not_hold_up_the_keys(run_dir: Path) -> None:
    """While a process does not respond, keys are obeyed, and it is said."""
    with socket.socket(socket.AF_UNIX) as hung:
        hung.bind(str(run_dir / "agent-0.sock"))
        hung.listen()
        with top(run_dir) as screen:
            screen.shows("reading ...")
            screen.press("?")
            screen.shows("Keys")
            screen.press("x")
            screen.shows(" 0 does not respond", "stuck?")
            screen.press("q")
            assert screen.end() == 0


def test_a_sidecar_adds_its_accelerators(place: Path) -> None:
    """With --url there are bars for each accelerator."""
    with exporters(place) as start:
        sidecar = start("--demo")
        sidecar.until_ready()
        with top(place, "--url", sidecar.url, columns=120) as screen:
            text = screen.shows(
                "ACCELERATOR", "█", "MEMORY", "GiB/", "train.py", " steps/s"
            )
            assert "No: " in text
            assert sidecar.url in text.splitlines()[0]
            screen.press("\r")
            screen.shows("worker 0 · pid ", "REQUESTS")
            screen.press("h")
            sidecar.stop()
            screen.shows("Cannot read: ", "Shown is what was read", "train.py")
            screen.press("q")
            assert screen.end() == 0


@pytest.mark.parametrize("environ", [{}, {"TERM": "dumb"}])
def test_what_is_no_terminal_is_told(place: Path, environ: dict[str, str]) -> None:
    """A pipe or a terminal that cannot be drawn on gets the names of other commands."""
    command = ("-m", "jaxmon", "top")
    if environ:
        with console(command, clean_environ(place, **environ)) as screen:
            code = screen.end()
            said = screen.output.decode()
    else:
        done = subprocess.run(
            [sys.executable, *command],
            env=clean_environ(place),
            capture_output=True,
            text=True,
            check=False,
        )
        code, said = done.returncode, done.stderr
    assert code == 1
    assert "jaxmon ps" in said
    assert "\x1b" not in said
