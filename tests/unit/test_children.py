"""Processes that end with the block that started them."""

import os
import re
import sys
from pathlib import Path

import pytest

from jaxmon.errors import CommandError
from jaxmon_alerts.gameday.children import Children


READY = re.compile(r"ready at (\S+)")
WAITS = "import time; print('ready at 1', flush=True); time.sleep(60)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "print('ready at 2', flush=True); time.sleep(60)"
)
DIES = "import sys; print('my reason', file=sys.stderr); sys.exit(3)"


def python(source: str) -> list[str]:
    """Return the command line that runs *source*."""
    return [sys.executable, "-c", source]


def test_children_end_with_the_block(tmp_path: Path) -> None:
    """A process that heeds SIGTERM ends by it, one that does not is killed."""
    with Children(os.environ, tmp_path, patience=1.0) as children:
        heeds = children.start("heeds", python(WAITS))
        ignores = children.start("ignores", python(STUBBORN))
        assert heeds.says(READY, seconds=90) == "1"
        assert ignores.says(READY, seconds=90) == "2"
        children.check()

    assert (heeds.process.returncode, ignores.process.returncode) == (-15, -9)


def test_end_of_a_child_is_told_with_its_last_words(tmp_path: Path) -> None:
    """The message names the child, how it ended, and what it wrote to stderr."""
    with Children(os.environ, tmp_path) as children:
        child = children.start("worker", python(DIES))
        child.process.wait(90)
        with pytest.raises(CommandError, match=r"(?s)worker .* code 3.*my reason"):
            children.check()
        with pytest.raises(CommandError, match="my reason"):
            child.says(READY, seconds=90)


def test_child_that_is_not_ready_in_time_is_told(tmp_path: Path) -> None:
    """Waiting for a line has an end."""
    with Children(os.environ, tmp_path) as children:
        child = children.start("worker", python(WAITS))
        with pytest.raises(CommandError, match=r"worker was not ready after 0.2 sec"):
            child.says(re.compile("(never)"), seconds=0.2)


def test_children_end_when_the_block_fails(tmp_path: Path) -> None:
    """An error in the command leaves no process behind."""
    started = []

    def command() -> None:
        with Children(os.environ, tmp_path) as children:
            started.append(children.start("worker", python(WAITS)))
            started[0].says(READY, seconds=90)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        command()
    assert started[0].process.returncode == -15
