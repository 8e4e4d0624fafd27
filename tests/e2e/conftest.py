"""A real browser for the end-to-end tests, and what they serve to it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers.browser import Agent, chromium
from tests.helpers.processes import clean_environ


if TYPE_CHECKING:
    from selenium.webdriver import Chrome


JAXMON = str(Path(sys.executable).with_name("jaxmon"))


@pytest.fixture(scope="session")
def chrome() -> Iterator[Chrome]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def exporter(run_dir: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    with ExitStack() as stack:

        def start(*arguments: str, **environ: str) -> Any:
            process = subprocess.Popen(
                [JAXMON, "exporter", "--agents-interval", "0.2", *arguments],
                env=clean_environ(run_dir, **environ),
                stderr=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.terminate)
            assert process.stderr is not None
            for line in process.stderr:
                if found := re.search(r"http://localhost:\d+/", line):
                    process.url = found[0]  # type: ignore[attr-defined]
                    return process
            raise AssertionError(process.wait())

        yield start


@pytest.fixture
def agent(run_dir: Path) -> Iterator[Agent]:
    agent = Agent(run_dir)
    yield agent
    agent.server.stop()


@pytest.fixture
def other(run_dir: Path) -> Iterator[Agent]:
    agent = Agent(run_dir, 1)
    yield agent
    agent.server.stop()
