"""
Fixtures that several tests share: Grafana to push to, and GPUs to read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.grafana import FakeGrafana
from tests.fakes.nvml.build import build
from tests.fakes.nvml.gpus import Gpus, fake_gpus
from tests.push_site import Site, check_site


@pytest.fixture
def make_site(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    """
    Return a function that starts a Grafana and returns a site for it.
    """
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
    """
    Return a site with an empty Grafana.
    """
    return make_site()


@pytest.fixture
def pushed(site: Site) -> Site:
    """
    Return a site whose dashboards have been pushed.
    """
    assert site.push().code == 0
    return site


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """
    Return the directory of the compiled fake NVML.
    """
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def gpus(nvml_library: Path, tmp_path: Path) -> Iterator[Callable[..., Gpus]]:
    """
    Return a function that starts the NVML collector on a number of fake devices.
    """
    with fake_gpus(nvml_library, tmp_path) as start:
        yield start
