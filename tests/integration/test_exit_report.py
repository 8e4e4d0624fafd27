"""The report at the end of a program: once, on standard error, however it ends."""

import os
import re
import select
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jaxmon.facts import endings
from jaxmon.facts.ending import FINISHED
from jaxmon.host.formats import layout
from jaxmon.screens.text import MOST_LINES
from tests.helpers.preloaded import Program, start_preloaded
from tests.helpers.processes import Result, clean_environ, run_python, some


PROGRAM = """
import os, sys
import jaxmon
jaxmon.instrument(port=None, report=True)
import jax, numpy as np

@jax.jit
def forward(x):
    return x * 2

for size in range(1, 7):
    forward(np.ones(size, np.float32))
print("worked", flush=True)
"""
QUIET = PROGRAM.replace("range(1, 7)", "range(1, 2)")
BEGIN = "── jaxmon: "
STORM = "__main__.forward was recompiled 5 times because an argument's shape"


def reports(result: Result) -> int:
    return result.err.count(BEGIN)


@pytest.mark.parametrize(
    ("script", "end", "code"),
    [
        ("python_script", "raise KeyboardInterrupt", -2),
        ("preloaded_script", "", 0),
        pytest.param(
            *("preloaded_script", "sys.exit(3)", 3), marks=pytest.mark.exhaustive
        ),
        ("preloaded_script", "raise ValueError('mine')", 1),
        ("preloaded_script", "forward('no')", 1),
        ("preloaded_script", "jax.config.update('jax_platforms', 'none')", 0),
    ],
)
def test_every_orderly_end_is_reported(request, script, end, code):
    """Once, after all that the program printed, and the exit code is the program's."""
    result = request.getfixturevalue(script)(PROGRAM + end)

    assert result.code == code, result.err
    assert reports(result) == 1
    assert " ".join(result.err.split()).count(STORM) == 1
    assert result.out == "worked\n"
    assert result.err.splitlines()[-1] == "─" * 80
    if "mine" in end:
        assert result.err.index("ValueError: mine") < result.err.index(BEGIN)
    report = result.err[result.err.index(BEGIN) :].splitlines()
    assert len(report) <= MOST_LINES
    assert all(layout.columns(line) <= 80 for line in report)


IMPATIENT = """
import os, signal, sys, threading
import jax, jaxmon
done = threading.Event()
class Stream:
    def __getattr__(self, name):
        return getattr(sys.__stderr__, name)
    def write(self, text):
        if "COMPILE TIME" in text:
            signal.raise_signal(signal.SIGINT)
        return sys.__stderr__.write(text)
def first(values, step):
    if "jaxmon/findings" in values:
        done.wait(60)
        os.kill(os.getpid(), signal.SIGINT)
def second(values, step):
    if "jaxmon/findings" in values:
        os.write(1, b"second\\n")
        done.set()
sys.stderr = Stream()
jaxmon.instrument(port=0, report=True)
jaxmon.log_to(first, every=1)
jaxmon.log_to(second, every=1)
for _ in jaxmon.steps(range(2)):
    jax.jit(lambda x: x + 1)(1.0)
sys.exit(7)
"""


def test_a_second_interrupt_ends_only_what_waits(preloaded_script, run_dir):
    """Ctrl-C at the exit prints nothing, and is no crash."""
    result = preloaded_script(IMPATIENT)

    assert result.code == 7
    assert result.err == ""
    assert result.out == "second\n"
    slot = endings.slots(run_dir)["0"]
    assert slot.latest.state == FINISHED
    assert sorted(one.suffix for one in run_dir.glob("agent-*")) == [".end"]


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("os._exit(4)", 4),
        ("os.kill(os.getpid(), 9)", -9),
        ("jaxmon.uninstrument()", 0),
    ],
)
def test_other_ends_are_not(preloaded_script, end, code) -> None:
    """Who leaves without Python's farewell, or has sent jaxmon away, gets no report."""
    result = preloaded_script(QUIET + end)

    assert result.code == code
    assert reports(result) == 0


def test_a_report_is_only_made_when_asked_for(preloaded_script) -> None:
    """By argument, by variable, or by `jaxmon run --report`; not by itself."""
    silent = QUIET.replace(", report=True", "")

    assert reports(preloaded_script(silent).ok()) == 0
    assert reports(preloaded_script(silent, env={"JAXMON_REPORT": "1"}).ok()) == 1
    assert reports(preloaded_script(QUIET, env={"JAXMON_ENABLED": "0"}).ok()) == 0


@pytest.mark.exhaustive
def test_run_reports_too(tmp_path: Path, run_dir: Path) -> None:
    """`jaxmon run --report` needs no change to the program."""
    program = tmp_path / "mine.py"
    program.write_text(
        PROGRAM.replace("import jaxmon\n", "").replace(
            "jaxmon.instrument(port=None, report=True)\n", ""
        )
    )
    result = run_python(
        *("-m", "jaxmon", "run", "--no-tcp", "--report", str(program)), run_dir=run_dir
    ).ok()

    assert reports(result) == 1
    assert STORM in " ".join(result.err.split())
    assert "mine.py ──" in result.err


def test_a_short_program_tells_its_memory(preloaded_script) -> None:
    """The last look names the line that holds most."""
    held = "\nheld = jax.numpy.zeros(1 << 19, np.float32)\n"
    result = preloaded_script(
        PROGRAM + held, env={"JAXMON_MEMORY_INTERVAL": "3600"}
    ).ok()

    assert (
        "DEVICE MEMORY: peak of the snapshots 2 MiB in live arrays, on device 0"
        in result.err
    )
    assert re.search(r"  largest: 2 MiB from \S*/script.py:15\n", result.err)


def test_memory_is_that_while_the_program_ran(preloaded_script) -> None:
    """It is not what is left when `main` has returned."""
    main = """
def main():
    devices = jax.devices()
    one = jax.device_put(np.zeros(1 << 19, np.int32), devices[1])
    both = [jax.device_put(np.zeros(3 << 18, np.int8), one) for one in devices]
    jaxmon.instrument().refresh()
    print(sum(x.nbytes for x in (one, both[1])))

main()
"""
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    result = preloaded_script(PROGRAM + main, env=flags).ok()

    assert result.out.split()[-1] == str(11 << 18)
    assert (
        "DEVICE MEMORY: peak of the snapshots 2.75 MiB in live arrays, on device 1\n"
        in result.err
    )
    assert re.search(r"  largest: 2 MiB from \S*/script.py:17\n", result.err)


AHEAD = """
import threading
import jaxmon
agent = jaxmon.instrument(port=None, report=True)
import jax, numpy as np
from jaxmon import clocks

def step(x):
    for _ in range(10):
        x = jax.numpy.tanh(x @ x)
    return x

given = [np.ones((size, size), np.float32) for size in range(8)]
lowered = [jax.jit(step).lower(x) for x in given]
compiled = []
threads = [
    threading.Thread(target=lambda one=one: compiled.append(one.compile()))
    for one in lowered
]
for one in threads: one.start()
for one in threads: one.join()
for one in compiled: one(*[x for x in given if x.shape == one.in_avals[0][0].shape])
# As if they had compiled at the same time on as many processors.
runtime = agent._runtime
started = runtime.overview.started[0], clocks.monotonic() - 0.001
runtime.overview = runtime.overview._replace(started=started)
"""


def test_what_is_compiled_ahead_of_time_is_no_part_of_more_than_all(preloaded_script):
    """Several threads compile at once, and calls that nothing counts are not 0."""
    result = preloaded_script(AHEAD).ok()

    assert re.search(r"COMPILE TIME: .* s, on several threads, in ", result.err)
    (row,) = [one for one in result.err.splitlines() if "__main__.step " in one]
    assert row.split()[1:4] == ["-", "-", "8"]
    assert "Calls of programs that were compiled ahead of time" in result.err
    assert not re.search(r"\d{3,} %", result.err.replace("100 %", ""))


def test_forked_children_do_not_report(preloaded_script) -> None:
    """
    A child that ends orderly says nothing; the parent does, once, and functions of
    atexit still run after that.
    """
    result = preloaded_script(
        "import atexit\nlast = atexit.register(lambda: print('last', flush=True))\n"
        + QUIET
        + """
import warnings
warnings.simplefilter("ignore")
pid = os.fork()
if pid == 0:
    atexit.unregister(last)
    sys.exit(0)
os.waitpid(pid, 0)
"""
    ).ok()

    assert result.out == "worked\nlast\n"
    assert reports(result) == 1


@pytest.mark.parametrize(
    "change",
    some(
        [
            "sys.stderr = None",
            "sys.stderr = open(os.devnull, 'w')",
            "os.close(2)",
            "sys.stderr.close()",
            "sys.argv = None; sys.orig_argv = ['\\x1b[2J' * 999]",
        ],
        2,
    ),
)
def test_a_standard_error_that_is_gone_is_no_failure(preloaded_script, change) -> None:
    """Nothing is raised, nothing is printed elsewhere, and the exit code stays."""
    result = preloaded_script(QUIET + change + "\nsys.exit(5)")

    assert result.code == 5
    assert result.out == "worked\n"
    assert "Traceback" not in result.err
    assert "\x1b" not in result.err


@contextmanager
def started(run_dir: Path, source: str, stderr: int) -> Iterator[Program]:
    with start_preloaded(
        *("-c", source), environ=clean_environ(run_dir), stderr=stderr
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("handler", ["", "import signal; signal.signal(13, 0)\n"])
def test_a_reader_that_left_does_not_change_the_exit_code(run_dir, handler):
    """A closed pipe ends no process."""
    reader, writer = os.pipe()
    with started(run_dir, handler + QUIET + "sys.stdin.read()", writer) as program:
        os.close(writer)
        os.close(reader)

        assert program.wait(240) == 0


def test_a_reader_that_does_not_read_is_not_waited_for(run_dir: Path) -> None:
    """A full pipe holds the program up for two seconds at most."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    while True:
        try:
            os.write(writer, b"x" * select.PIPE_BUF)
        except BlockingIOError:
            break
    os.set_blocking(writer, True)
    try:
        with started(run_dir, QUIET + "sys.exit(6)", writer) as program:
            assert program.wait(240) == 6
    finally:
        os.close(reader)
        os.close(writer)


@pytest.mark.exhaustive
def test_a_terminal_without_unicode_gets_a_readable_report(python_script):
    """What the encoding lacks becomes a question mark; nothing is raised."""
    result = python_script(PROGRAM, env={"PYTHONIOENCODING": "ascii"}).ok()

    assert "jaxmon: python" in result.err
    assert "FINDINGS" in result.err
    assert result.err.isascii()


def test_a_failure_in_the_report_is_contained(preloaded_script) -> None:
    """The program ends as it did; the failure is said in a line of the log."""
    broken = """
import jaxmon.agent.reports.exit_reports
def fail(*_):
    raise RuntimeError("broken")
jaxmon.agent.reports.exit_reports.find = fail
"""
    result = preloaded_script(QUIET + broken + "sys.exit(7)")

    assert result.code == 7
    assert reports(result) == 0
    assert "jaxmon failed in report. Your program is not affected" in result.err


def test_a_program_of_its_own_with_standard_error_replaced(preloaded_script) -> None:
    """A notebook or a logger in the place of standard error gets the report."""
    result = preloaded_script(
        QUIET
        + """
import io
class Notebook(io.StringIO):
    def write(self, text):
        print("got", text.count("jaxmon: "))
        return len(text)
sys.stderr = Notebook()
"""
    ).ok()

    assert result.out == "worked\ngot 1\n"
    assert reports(result) == 0
