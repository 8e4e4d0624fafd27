"""What a program leaves in its slot when it ends."""

import time
from pathlib import Path
from typing import Any

import pytest

from jaxmon.facts import endings
from jaxmon.facts.ending import CRASHED, FINISHED, ProcessEnd
from tests.helpers.preloaded import run_preloaded


PROGRAM = """
import asyncio, sys, threading
import jax, jaxmon
from jaxmon.agent.errors import last_words
from jaxmon.agent.jaxlink.backends import Cluster

jaxmon.instrument(port=None)
if sys.argv[2] == "job":
    last_words.cluster = lambda _: Cluster(0, 2, "127.0.0.1:1")

class Exit(RuntimeError):
    def __init__(self, code):
        self.exit_code = code

def save():
    try:
        open("/dev/full", "wb", buffering=0).write(b"weights")
    except OSError as error:
        text = "cannot save to https://me:hunter22@host/x\\nmore"
        raise RuntimeError(text) from error

def end(way):
    if way == "raises":
        save()
    elif way == "exits":
        sys.exit(3)
    elif way == "complains":
        sys.exit("no data")
    elif way == "memory":
        jax.numpy.ones((1 << 44,), jax.numpy.float32)
    elif way in ("reports", "asyncio", "starts again", "in order"):
        try:
            save()
        except RuntimeError:
            codes = {"starts again": 75, "in order": 0}
            sys.exit(codes.get(way, 1))
    elif way == "as click does":
        try:
            try:
                save()
            except RuntimeError:
                raise Exit(1)
        except Exit as error:
            sys.exit(error.exit_code)
    elif way == "runs out":
        try:
            jax.numpy.ones((1 << 44,), jax.numpy.float32)
        except Exception:
            sys.exit("no memory")
    elif way == "thread":
        thread = threading.Thread(target=save)
        thread.start()
        thread.join()
    elif way == "caught":
        try:
            sys.exit(4)
        except SystemExit:
            pass

async def train():
    end("asyncio")

for number in jaxmon.steps(range(8), loop="fit"):
    if number == 5:
        if sys.argv[1] == "asyncio":
            asyncio.run(train())
        end(sys.argv[1])
if sys.argv[1].startswith("caught at the end"):
    try:
        end("reports")
    except SystemExit as error:
        kept = error.code
    if sys.argv[1].endswith("and exits"):
        sys.exit()
"""


def words_of(
    way: str, directory: Path, where: str = "job"
) -> tuple[dict[str, Any], int]:
    """Run the program in a job or alone; return its last words and its exit code."""
    path, run_dir = directory / "train.py", directory / "run"
    path.write_text(PROGRAM)
    done = run_preloaded(str(path), way, where, run_dir=run_dir, cwd=directory)
    [slot] = endings.slots(run_dir).values()
    found = {name: getattr(slot.latest, name) for name in ProcessEnd.__annotations__}
    causes = [vars(one) for one in slot.latest.causes]
    return {**found, "causes": causes}, done.code


@pytest.mark.parametrize(
    ("way", "code", "expected"),
    [
        (
            "raises",
            1,
            {
                "kind": "exception",
                "type": "RuntimeError",
                "message": "cannot save to https://…@host/x",
                "where": "train.py:20",
                "function": "save",
                "oom": False,
                "steps": 5,
                "causes": [{"type": "OSError", "message": "No space left on device"}],
            },
        ),
        ("memory", 1, {"kind": "exception", "where": "train.py:30", "oom": True}),
        ("exits", 3, {"kind": "exit", "code": 3, "where": "train.py:26", "steps": 5}),
        ("complains", 1, {"kind": "exit", "code": 1, "message": "no data"}),
        ("caught", 0, {"kind": "finished", "steps": 8}),
        ("thread", 0, {"kind": "finished", "steps": 8}),
    ],
)
def test_a_program_leaves_how_it_ended(way, code, expected, tmp_path):
    """Its error, line and step, and when; the program ends as it would without us."""
    before, since = time.time(), time.clock_gettime(time.CLOCK_BOOTTIME)
    found, returned = words_of(way, tmp_path)
    assert returned == code
    assert {key: found[key] for key in expected} == expected
    assert found["loop"] == "fit"
    assert (found["rank"], found["ranks"], found["coordinator"]) == JOB
    assert found["observed_seconds"] > 0
    assert before <= found["time"] <= time.time()
    assert since <= found["boottime"] <= time.clock_gettime(time.CLOCK_BOOTTIME)


JOB = (0, 2, "127.0.0.1:1")
HANDLED = [
    {
        "type": "RuntimeError",
        "message": "cannot save to https://…@host/x",
    },
    {"type": "OSError", "message": "No space left on device"},
]


@pytest.mark.parametrize("where", ["job", "alone"])
@pytest.mark.parametrize(
    ("way", "code", "state", "expected"),
    [
        (
            "reports",
            1,
            CRASHED,
            {"kind": "exit", "code": 1, "where": "train.py:20", "causes": HANDLED},
        ),
        (
            "as click does",
            1,
            CRASHED,
            {
                "where": "train.py:20",
                "causes": [*HANDLED, {"type": "__main__.Exit", "message": ""}],
            },
        ),
        ("asyncio", 1, CRASHED, {"kind": "exit", "causes": HANDLED}),
        ("starts again", 75, FINISHED, {"kind": "exit", "causes": HANDLED}),
        ("in order", 0, FINISHED, {"kind": "finished"}),
        (
            "runs out",
            1,
            CRASHED,
            {"kind": "exit", "message": "no memory", "oom": True},
        ),
        ("caught at the end", 0, FINISHED, {"kind": "finished"}),
        ("caught at the end, and exits", 0, FINISHED, {"kind": "finished"}),
    ],
)
def test_an_exception_may_be_turned_into_an_exit(  # noqa: PLR0917 - fixtures and a case
    way, code, state, expected, where, tmp_path
):
    """With the code 1, the exception ended the program, as if it were uncaught."""
    found, returned = words_of(way, tmp_path, where)
    assert returned == code
    assert {key: found[key] for key in expected} == expected
    assert found["state"] == state


def test_alone_the_traceback_of_an_exit_is_the_programs(tmp_path: Path) -> None:
    """Only in a job is the code of `sys.exit` worth a line in its traceback."""
    found, returned = words_of("exits", tmp_path, "alone")
    assert returned == 3
    assert found["kind"] == "finished"
