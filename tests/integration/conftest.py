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

import jaxmon.http.single.server
import tests.guarded
import tests.serving
from tests.fakes.agents import Raw, Serve, behaving, serving
from tests.fakes.grafana import FakeGrafana
from tests.fakes.nvml.build import build
from tests.fakes.nvml.gpus import Gpus, fake_gpus
from tests.instrumented import instrumented
from tests.push_site import Site, check_site


if TYPE_CHECKING:
    from jaxmon.agent import Agent
    from jaxmon.agent.sampling.part import Sampling


SERVED_BY_BOTH = {
    "test_local_pages",
    "test_passwords",
    "test_security",
    "test_server",
    "test_server_bursts",
    "test_server_clients",
    "test_server_floods",
    "test_server_hosts",
    "test_server_life",
}
# What a client sees of a connection that is kept.
KEPT = {
    "test_a_client_that_has_said_all_is_answered",
    "test_a_connection_serves_many_requests",
    "test_an_idle_client_gives_way_before_an_answer_under_way",
    "test_an_idle_client_of_another_address_is_left_alone",
    "test_an_unused_connection_is_closed",
    "test_far_too_many_clients_are_bounded",
    "test_http_1_0_closes_unless_asked_to_keep",
    "test_many_requests_in_one_packet_let_others_in_between",
    "test_requests_that_came_together_share_a_page",
    "test_slow_readers_of_their_own_words_give_way",
    "test_the_longest_idle_connection_gives_way",
    "test_who_says_nothing_is_not_waited_for",
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what is about the HTTP server on the old one and on the new one."""
    if metafunc.module.__name__.rpartition(".")[2] in SERVED_BY_BOTH:
        kept = metafunc.function.__name__ in KEPT
        kinds = ["keeping"] if kept else ["keeping", "single"]
        metafunc.parametrize("server_kind", kinds, indirect=True)


@pytest.fixture(autouse=True)
def server_kind(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Have the test use the server that is asked for."""
    if getattr(request, "param", "keeping") == "single":
        for module in (request.module, tests.serving, tests.guarded):
            if hasattr(module, "Server"):
                monkeypatch.setattr(module, "Server", jaxmon.http.single.server.Server)


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    """
    Return an agent that reports into a directory of the test; behind its hooks nobody
    prints what was not caught.
    """
    monkeypatch.setattr(sys, "excepthook", lambda *_: None)
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    with instrumented(report_dir=str(tmp_path / "reports")) as running:
        yield running


@pytest.fixture
def sampling(agent: Agent) -> Sampling:
    """Return what samples in the agent of the test."""
    return agent._parts.sampling


@pytest.fixture
def make_site(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    """Return a function that starts a Grafana and returns a site for it."""
    with ExitStack() as stack:
        made: list[Site] = []

        def make(
            *, url: str = "", options: tuple[str, ...] = (), **grafana: Any
        ) -> Site:
            fake = stack.enter_context(FakeGrafana(**grafana))
            directory = tmp_path / f"site-{len(made)}"
            directory.mkdir()
            made.append(Site(fake, directory, url=url, options=options))
            return made[-1]

        yield make
        for site in made:
            check_site(site)


@pytest.fixture
def site(make_site: Callable[..., Site]) -> Site:
    """Return a site with an empty Grafana."""
    return make_site()


@pytest.fixture
def pushed(site: Site) -> Site:
    """Return a site whose dashboards have been pushed."""
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


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of the compiled fake NVML."""
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def gpus(nvml_library: Path, tmp_path: Path) -> Iterator[Callable[..., Gpus]]:
    """Return a function that starts the NVML collector on a number of fake devices."""
    with fake_gpus(nvml_library, tmp_path) as start:
        yield start
