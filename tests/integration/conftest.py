"""
Fixtures that several tests share: an agent for errors, what samples in one, agents and
GPUs to read, and Grafana to push to.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.fakes.agents import Raw, Serve, behaving, serving
from tests.fakes.grafana import FakeGrafana
from tests.fakes.nvml.gpus import Gpus, fake_gpus
from tests.helpers import inside
from tests.helpers.agents import instrumented
from tests.helpers.commands import running
from tests.helpers.dashboards import Site, check_site
from tests.helpers.otlp import Receiver, receiver
from tests.helpers.preloaded import Program
from tests.helpers.sidecars import Exporter, exporters
from tests.job.inspected import Write, writing


if TYPE_CHECKING:
    from jaxmon.agent import Agent
    from jaxmon.agent.sampling.part import Sampling


@pytest.fixture
def agent(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Agent]:
    """
    Return an agent with the settings ``AGENT`` of the module, if it has any. It reports
    into a directory of the test; behind its hooks no one prints uncaught exceptions.
    """
    monkeypatch.setattr(sys, "excepthook", lambda *_: None)
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    settings = getattr(request.module, "AGENT", {})
    with instrumented(report_dir=str(tmp_path / "reports"), **settings) as running:
        yield running


@pytest.fixture
def sampling(agent: Agent) -> Sampling:
    return inside.sampling(agent)


@pytest.fixture(params=["classic", "v2"])
def model(request: pytest.FixtureRequest) -> str:
    """Return the model of the dashboards, in Grafana and in files."""
    return str(request.param)


@pytest.fixture
def make_site(tmp_path: Path, model: str) -> Iterator[Callable[..., Site]]:
    """Return a function that starts a Grafana and returns a site for it."""
    with ExitStack() as stack:
        made: list[Site] = []

        def make(
            *, url: str = "", options: tuple[str, ...] = (), **grafana: Any
        ) -> Site:
            fake = stack.enter_context(FakeGrafana(**{"model": model, **grafana}))
            directory = tmp_path / f"site-{len(made)}"
            directory.mkdir()
            made.append(Site(fake, directory, url=url, options=options))
            return made[-1]

        yield make
        for site in made:
            check_site(site)


@pytest.fixture
def site(make_site: Callable[..., Site]) -> Site:
    return make_site()


@pytest.fixture
def pushed(site: Site) -> Site:
    assert site.push().code == 0
    return site


@pytest.fixture
def serve(run_dir: Path) -> Iterator[Serve]:
    """Return a function that serves a page in a slot, with the agent's own server."""
    with serving(run_dir) as start:
        yield start


@pytest.fixture
def raw(run_dir: Path) -> Iterator[Raw]:
    """Return a function that lets *behave* answer each connection to a slot."""
    with behaving(run_dir) as start:
        yield start


@pytest.fixture
def exporter(run_dir: Path) -> Iterator[Callable[..., Exporter]]:
    """Return a function that starts ``jaxmon exporter`` on a free port."""
    with exporters(run_dir) as start:
        yield start


@pytest.fixture
def gpus(nvml_library: Path, tmp_path: Path) -> Iterator[Callable[..., Gpus]]:
    """Return a function that starts the NVML collector on a number of fake devices."""
    with fake_gpus(nvml_library, tmp_path) as start:
        yield start


@pytest.fixture
def programs(run_dir: Path, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Return a function that starts a program and waits until it is ready."""
    with ExitStack() as stack:

        def start(source: str, name: str = "program.py") -> Program:
            path = tmp_path / name
            path.write_text(source)
            return stack.enter_context(running(path, run_dir))

        yield start


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Return an empty directory for the files of NCCL Inspector."""
    made = tmp_path / "files"
    made.mkdir()
    return made


@pytest.fixture
def write(files: Path) -> Iterator[Write]:
    """Return a function that starts what writes a process's file in *files*."""
    with writing(files) as start:
        yield start


@pytest.fixture(scope="module", name="running")
def otlp_receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    """Return a receiver; tests tell their requests by the name of the service."""
    with receiver(tmp_path_factory.mktemp("otlp")) as found:
        yield found
