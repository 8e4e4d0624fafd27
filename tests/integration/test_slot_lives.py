"""How the processes of a slot ended, as the sidecar exports it."""

import json
import shutil
import signal
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
from click.testing import CliRunner

from jaxmon.agent.end_writer import EndWriter
from jaxmon.catalog import (
    AGENT_CRASHES,
    AGENT_DIED,
    AGENT_FINISHED_SECONDS,
    AGENT_STARTS,
)
from jaxmon.cli.main import main
from jaxmon.facts import ending, endings
from jaxmon.facts.ending import FINISHED
from jaxmon_exporter.collectors.agents import Agents
from tests.fakes.agents import GOOD, failures, page_of
from tests.helpers.preloaded import Program, run_preloaded, start_preloaded
from tests.helpers.processes import (
    KERNEL_REPORTS_EXITS,
    clean_environ,
    exits_are_reported,
    http_get,
    run_python,
    until,
)
from tests.helpers.sidecars import left, rewrite, values
from tests.job.served import sidecar


HEAD = """
import os, signal, sys, time
import jaxmon
agent = jaxmon.instrument(port=None)
def batches():
    yield 1
    raise OSError("the disk is gone")
"""
FINISHED_SECONDS = f'{AGENT_FINISHED_SECONDS.name}{{worker="0"}}'
LOOP = "for _ in jaxmon.steps([1, 2]):\n"


@pytest.fixture
def agents(run_dir: Path) -> Agents:
    """Return the collector of a sidecar."""
    return Agents(run_dir)


def seen(agents: Agents) -> tuple[float, float, dict[str, float]]:
    """Return starts and crashes of the first slot, and by loop whether it crashed."""
    page = page_of(agents)
    died = {
        series.split('loop="')[1].partition('"')[0]: value
        for series, value in page.items()
        if series.startswith(f'{AGENT_DIED.name}{{worker="0"')
    }
    starts = page[f'{AGENT_STARTS.name}{{worker="0"}}']
    return starts, page[f'{AGENT_CRASHES.name}{{worker="0"}}'], died


def run(run_dir: Path, program: str) -> int:
    """Run *program* with an agent; return its exit code."""
    # Python itself makes a death by the signal of what is no exception to a user.
    start = run_python if "KeyboardInterrupt" in program else run_preloaded
    return start("-c", HEAD + program, run_dir=run_dir).code


@contextmanager
def waiting(run_dir: Path, program: str) -> Iterator[Program]:
    """Run *program* with an agent until it has written a line."""
    with start_preloaded(
        *("-c", HEAD + program),
        environ=clean_environ(run_dir),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
    ) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("pass", 0),
        ("sys.exit(0)", 0),
        ("raise KeyboardInterrupt", -signal.SIGINT),
        ("jaxmon.uninstrument(); os._exit(0)", 0),
        (f"{LOOP}    pass", 0),
    ],
)
def test_a_process_that_finishes_has_not_died(run_dir, agents, end, code):
    """At the end of the program, by its own decision or a user's: nothing crashed."""
    assert run(run_dir, end) == code
    assert seen(agents) == (1, 0, {"": 0})
    assert 0 <= page_of(agents)[FINISHED_SECONDS] < 90


@pytest.mark.parametrize(
    ("end", "code", "loop"),
    [
        ("raise ValueError", 1, ""),
        ("os._exit(0)", 0, ""),
        (f"{LOOP}    pass\nos._exit(0)", 0, ""),
        (f"{LOOP}    raise ValueError", 1, "train"),
        (f"{LOOP}    os._exit(3)", 3, "train"),
        (f"{LOOP}    os.kill(os.getpid(), signal.SIGKILL)", -9, "train"),
        (f"{LOOP}    os.kill(os.getpid(), signal.SIGTERM)", -15, "train"),
        (f"{LOOP}    os.kill(os.getpid(), signal.SIGSEGV)", -11, "train"),
        ("for _ in jaxmon.steps(batches(), loop='fit'): pass", 1, "fit"),
    ],
)
def test_a_process_that_does_not_finish_has_died(run_dir, agents, end, code, loop):
    """However it ended otherwise; without a record, it counts if it repeats."""
    known = int("raise" in end or "batches" in end)
    for number in (0, 1):
        assert run(run_dir, end) == code
        assert seen(agents) == (number + 1, number + known, {loop: 1})
    assert FINISHED_SECONDS not in page_of(agents)


def test_a_successor_ends_the_death_of_a_process(run_dir: Path, agents: Agents) -> None:
    """The crash stays counted, once."""
    run(run_dir, f"{LOOP}    raise ValueError")
    assert seen(agents) == (1, 1, {"train": 1})
    with waiting(run_dir, "print('go', flush=True)\nsys.stdin.readline()\n"):
        assert seen(agents) == (2, 1, {"": 0})


def is_marked(url: str) -> bool:
    return FINISHED_SECONDS in values(http_get(url))


def test_what_finished_stays_marked(run_dir: Path, agents: Agents) -> None:
    """
    A day later, when its counts are no longer served, and by a sidecar that is started
    only then; until another process takes the slot, although that dies.
    """
    run(run_dir, f"{LOOP}    pass")
    record, day = left(run_dir), 86400.0
    assert record.time is not None
    assert record.boottime is not None
    earlier = {name: getattr(record, name) - day for name in ("time", "boottime")}
    earlier["counted_until"] = record.counted_until - day
    rewrite(run_dir / "agent-0.end", record.replace(**earlier))
    for _ in range(2):
        with sidecar(run_dir, enabled="agents") as address:
            url = f"http://{address}/metrics"
            until(partial(is_marked, url), "the first poll")
            page = values(http_get(url))
        assert day <= page[FINISHED_SECONDS] < day + 90
        assert not [name for name in page if "steps_total" in name]

    with waiting(run_dir, "print('go', flush=True)\nsys.stdin.readline()\n") as process:
        assert FINISHED_SECONDS not in page_of(agents)
        process.kill()
    assert FINISHED_SECONDS not in page_of(agents)


def test_a_crash_loop_is_counted(run_dir: Path, agents: Agents) -> None:
    """Each start and each crash counts, whether or not a poll came in between."""
    for number in range(5):
        run(run_dir, "raise ValueError")
        if number in (1, 2):
            assert seen(agents) == (number + 1, number + 1, {"": 1})

    assert seen(agents) == (5, 5, {"": 1})


@pytest.mark.parametrize("number", ["SIGABRT", "SIGUSR1"])
def test_an_exit_by_sigabrt_is_one_though_it_is_caught(run_dir: Path, number) -> None:
    """As of a server that ends a worker that takes too long; another may be nothing."""
    program = (
        f"signal.signal(signal.{number}, lambda *_: sys.exit(1))\n"
        f"try: os.kill(os.getpid(), signal.{number})\n"
        "except SystemExit: pass\n"
        "sys.exit(0)\n"
    )
    for _ in range(2):
        run(run_dir, program)
    with waiting(run_dir, "print('go', flush=True)\nsys.stdin.readline()\n"):
        found = endings.repeated(run_dir)
    texts = [text for text in found.values() if "in the handler of SIGABRT" in text]
    assert len(texts) == len(found) == (number == "SIGABRT")


def test_a_living_process_has_not_died(run_dir: Path, agents: Agents) -> None:
    """Its loop is known while it runs, and died is 1 as soon as it is killed."""
    program = (
        "run = iter(jaxmon.steps(range(9), loop='fit'))\n"
        "next(run)\n"
        "print('go', flush=True)\n"
        "sys.stdin.readline()\n"
        "list(run)\n"
        "print('done', flush=True)\n"
        "sys.stdin.readline()\n"
    )
    with waiting(run_dir, program) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert seen(agents) == (1, 0, {"fit": 0})
        process.stdin.write("\n")
        process.stdin.flush()
        process.stdout.readline()
        assert seen(agents) == (1, 0, {"": 0})
        process.kill()
        process.wait(60)
        until(lambda: seen(agents) == (1, 1, {"": 1}), "the process to be dead")


def test_a_loop_that_is_left_is_forgotten(run_dir: Path, agents: Agents) -> None:
    """Python says nothing to us when a loop is left by break; a check notices it."""
    program = f"{LOOP}    break\nprint('go', flush=True)\nsys.stdin.readline()\n"
    with waiting(run_dir, program) as process:
        until(lambda: seen(agents) == (1, 0, {"": 0}), "the loop to be forgotten")
        process.kill()
        process.wait(60)
    # What it wrote then is known of it now.
    until(lambda: seen(agents)[1], "the end")
    if KERNEL_REPORTS_EXITS:
        until(lambda: _completed(agents, run_dir), "the exit status")
    end = endings.slots(run_dir)["0"].latest
    assert (end.pid, end.loop, end.steps) == (process.pid, "train", 0)
    assert end.ended == "killed"
    assert "python" in end.program
    assert end.observed_seconds > 0
    how = "ended by SIGKILL" if KERNEL_REPORTS_EXITS else "killed, or ended without a"
    assert end.sentence.startswith(f"It was {how}")
    assert ", after step 0 of train; it was last seen at " in end.sentence


def test_a_forked_child_changes_nothing(run_dir: Path, agents: Agents) -> None:
    """Neither its end nor its loops are its parent's."""
    program = (
        "run = iter(jaxmon.steps(range(9), loop='fit'))\n"
        "next(run)\n"
        "if (child := os.fork()) == 0:\n"
        "    run.close()\n"
        "    for _ in jaxmon.steps([1], loop='child'): pass\n"
        "    sys.exit(0)\n"
        "os.waitpid(child, 0)\n"
        "print('go', flush=True)\n"
        "sys.stdin.readline()\n"
    )
    with waiting(run_dir, program) as process:
        assert seen(agents) == (1, 0, {"fit": 0})
        process.communicate("\n")
        assert process.returncode == 0
    assert seen(agents) == (1, 0, {"fit": 0})


def test_counts_survive_a_cleaner(run_dir: Path, agents: Agents) -> None:
    """A process rewrites its record when the directory was removed; counts restart."""
    run(run_dir, "raise ValueError")
    program = "print('go', flush=True)\nsys.stdin.readline()\n"
    with waiting(run_dir, program) as process:
        assert seen(agents) == (2, 1, {"": 0})
        shutil.rmtree(run_dir)
        until((run_dir / "agent-0.end").exists, "the record to be back")
        until(lambda: seen(agents) == (2, 1, {"": 0}), "the agent to be back")

        (run_dir / "agent-0.end").unlink()
        until((run_dir / "agent-0.end").exists, "the record to be back")
        until(lambda: seen(agents) == (2, 1, {"": 0}), "the agent to be back")
        process.communicate("\n")

    shutil.rmtree(run_dir)
    run_dir.mkdir()
    run(run_dir, "pass")
    assert seen(agents) == (1, 0, {"": 0})


def test_garbage_costs_one_record(
    run_dir: Path, agents: Agents, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that is no record has no series; one of a later release fails, once."""
    (run_dir / "agent-0.end").write_bytes(b"\xff" * 3000)
    (run_dir / "agent-1.end").write_bytes(b'{"schema":2,"starts":2}\n')
    for _ in range(2):
        page = page_of(agents)
        assert AGENT_STARTS.name not in "".join(page)
        assert failures(page) == {"agent_page": 1}
    [said] = caplog.messages
    assert said.endswith("its schema is 2; this jaxmon reads up to 1: upgrade it")

    run(run_dir, "pass")
    assert seen(agents) == (1, 0, {"": 0})


def test_an_agent_without_records_lives(run_dir, agents, serve):
    """Of an earlier release, in the slot of one that crashed: that one counts."""
    for _ in range(2):
        run(run_dir, "os._exit(1)")
    assert seen(agents) == (2, 1, {"": 1})
    (run_dir / "agent-0.sock").unlink()
    serve(0, GOOD)

    assert seen(agents) == (2, 1, {"": 0})


def test_the_counter_never_goes_back(run_dir: Path, agents: Agents) -> None:
    """A successor that has not counted its predecessor yet keeps the crash exported."""
    path = run_dir / "agent-0.end"
    first, second = EndWriter(path, 0o600), EndWriter(path, 0o600)
    first.begin()
    first.update({"kind": "exception"})
    first.abandon()
    assert seen(agents) == (1, 1, {"": 1})

    second._open()
    second._hold()
    assert seen(agents) == (1, 1, {"": 0})
    second.abandon()
    second.begin()
    assert seen(agents) == (2, 1, {"": 0})
    second.end(FINISHED)
    second.abandon()

    path.unlink()
    second.begin()
    assert seen(agents) == (1, 0, {"": 0})
    second.end(FINISHED)
    second.abandon()


WAYS = """
import os, signal, sys, threading
import jaxmon
jaxmon.instrument(port=None, time_interval=0, memory_interval=0)
def save():
    raise OSError("the disk is gone")
for step in jaxmon.steps(range(9), loop="fit"):
    if step == 3:
        print("ready", flush=True)
        sys.stdin.readline()
        way = sys.argv[1]
        if way == "raises":
            save()
        elif way == "exits":
            sys.exit(int(sys.argv[2]))
        elif way == "handles":
            try:
                save()
            except OSError:
                sys.exit(1)
        elif way == "thread":
            thread = threading.Thread(target=sys.exit, args=(5,))
            thread.start()
            thread.join()
        elif way == "_exit":
            os._exit(4)
        elif way == "forks":
            if (child := os.fork()) == 0:
                os._exit(6)
            os.waitpid(child, 0)
        elif way == "uninstruments":
            jaxmon.uninstrument()
            os._exit(7)
        else:
            os.kill(os.getpid(), getattr(signal, way))
"""
CRASHES = {
    "raises": "It raised OSError: the disk is gone, at train.py:6 in save after step 3 "
    "of fit.",
    "handles": "It exited with code 1 (after OSError: the disk is gone), at train.py:6 "
    "in save after step 3 of fit.",
    "_exit": "It exited with code 4 without a word, after step 3 of fit.",
    "SIGKILL": "It was ended by SIGKILL, after step 3 of fit.",
    "SIGSEGV": "It was ended by SIGSEGV, after step 3 of fit.",
}
FINISHES = {
    "SIGTERM": "It was stopped by SIGTERM, after step 3 of fit.",
    "SIGINT": "It was stopped by SIGINT, at train.py:35 in <module> after step 3 of "
    "fit.",
    "exits 0": "It finished, after step 3 of fit.",
    "exits 3": "It finished with code 3, after step 3 of fit.",
    "thread": "It finished, after step 9 of fit.",
    "forks": "It finished, after step 9 of fit.",
    "uninstruments": "It finished with code 7, after step 3 of fit.",
}


@exits_are_reported
def test_every_screen_says_how_each_process_ended(
    run_dir: Path, agents: Agents, tmp_path: Path
) -> None:
    """By the process or by the kernel; a reused slot keeps the record before."""
    expected = {**CRASHES, **FINISHES}
    script = tmp_path / "train.py"
    script.write_text(WAYS)
    with ExitStack() as stack:
        processes = [
            stack.enter_context(_at_the_fourth(run_dir, script, w)) for w in expected
        ]
        page_of(agents)  # from here on, the sidecar follows them
        until(lambda: _reached(run_dir, 3, len(processes)), "the third steps")
        for one in processes:
            one.communicate("\n")
    until(lambda: _completed(agents, run_dir), "the exit statuses")
    found = endings.slots(run_dir)
    ends = dict(zip(expected, (one.latest for one in found.values()), strict=True))
    where = "; it was last seen at "
    sentences = {w: one.sentence.partition(where)[0] for w, one in ends.items()}
    assert {w: f"{text.rstrip('.')}." for w, text in sentences.items()} == expected
    assert [one.pid for one in ends.values()] == [one.pid for one in processes]

    with sidecar(run_dir, enabled="agents", peer_access=True) as address:
        listed = until(lambda: _listed(f"http://{address}"), "the findings")
        bundle = tmp_path / "bundle.tar.gz"
        # With what runs elsewhere on this machine, as errors.
        listing = _printed("ps", "--json", "--ended", run_dir=run_dir)
        local = json.loads(listing[listing.index("{\n") :])
        _printed("bundle", f"--out={bundle}", run_dir=run_dir)
    for number, (way, text) in enumerate(expected.items()):
        of = [one for one in local["processes"] if one["worker"] == str(number)]
        assert [one["pid"] for one in of] == [processes[number].pid], way
        assert of[0]["state"] == ("crashed" if way in CRASHES else "ended")
        with tarfile.open(bundle) as archive:
            [name] = [n for n in archive.getnames() if f"-{number}/end.json" in n]
            packed = archive.extractfile(name)
            assert packed is not None
            assert ending.read(json.loads(packed.read())) == ends[way]
        if way in CRASHES:
            explained = _printed("explain", str(number), run_dir=run_dir)
            who = f"pid {processes[number].pid} (python {script} "
            how = text.removeprefix("It ").rstrip(".")
            for said in (of[0]["verdict"], listed[number]["verdict"], explained):
                assert who in said
                assert how in said
                assert " ago (2" in said
    with _at_the_fourth(run_dir, script, "thread"):
        assert endings.slots(run_dir)["0"].before == ends["raises"]


@contextmanager
def _at_the_fourth(run_dir: Path, script: Path, way: str) -> Iterator[Program]:
    """Run the program until its fourth step, which ends it in this *way*."""
    with start_preloaded(
        *(str(script), *way.split()),
        cwd=script.parent,
        environ=clean_environ(run_dir),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def _completed(agents: Agents, run_dir: Path) -> bool:
    page_of(agents)
    return all(one.latest.exited for one in endings.slots(run_dir).values())


def _reached(run_dir: Path, step: int, count: int) -> bool:
    """Return whether so many processes have recorded that they are at *step*."""
    found = [one.latest for one in endings.slots(run_dir).values()]
    return len([end for end in found if end.steps == step and end.program]) == count


def _listed(url: str) -> dict[int, Any]:
    """Return the processes that the sidecar shows, once it has judged them."""
    summary = json.loads(http_get(f"{url}/api/summary"))
    found = {int(one["worker"]): one for one in summary["agents"] if one["verdict"]}
    return found if len(found) == len(CRASHES) else {}


def _printed(*command: str, run_dir: Path) -> str:
    environ = {"JAXMON_RUN_DIR": str(run_dir), "COLUMNS": "1000"}
    return CliRunner().invoke(main, command, env=environ).output
