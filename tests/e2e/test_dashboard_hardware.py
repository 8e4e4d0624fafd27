"""
A service's dashboard shows its hardware, whichever job has the figures of it.

Pages of a cluster, scraped by a real Prometheus: programs have sidecars of their own, a
DaemonSet reads GPUs and hosts; beside it a plain host, and two with TPUs.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from jaxmon import catalog
from jaxmon.catalog import Metric
from jaxmon_alerts import rules as alerts
from tests.helpers.dashboards import Grafana, distinct
from tests.helpers.processes import until
from tests.helpers.prometheus import Prometheus


NODES = "jaxmon/jaxmon-node"


def line(metric: Metric, value: float, **labels: object) -> str:
    written = ",".join(f'{label}="{text}"' for label, text in labels.items())
    return f"{metric.name}{{{written}}} {float(value)}\n"


COLLECTOR = line(catalog.COLLECTOR_SUCCESS, 1, collector="nvml")


def program(*uses: str, worker: int = 0) -> str:
    """Return the series of a process that uses devices with these uuids."""
    ours = line(catalog.BUILD_INFO, 1, version="1", worker=worker)
    return ours + "".join(
        line(catalog.DEVICE_INFO, 1, worker=worker, device=number, uuid=uuid)
        for number, uuid in enumerate(uses)
    )


def hardware(*uuids: str, lost: str = "", part: str = "") -> str:
    """Return the series of a sidecar that reads accelerators and their host."""
    kinds = [
        (metric, {"uuid": uuid})
        for uuid in uuids
        for metric in (
            catalog.ACCELERATOR_INFO,
            catalog.ACCELERATOR_UTILIZATION_RATIO,
            catalog.ACCELERATOR_MEMORY_USED_BYTES,
            catalog.ACCELERATOR_MEMORY_SIZE_BYTES,
            catalog.ACCELERATOR_COST_DOLLARS_PER_HOUR,
        )
    ]
    parts = {"uuid": part, "parent": uuids[0]}
    return "".join(
        (
            line(catalog.BUILD_INFO, 1, version="1"),
            *(line(metric, 1, **labels) for metric, labels in kinds),
            *(line(catalog.ACCELERATOR_UP, one != lost, uuid=one) for one in uuids),
            *([line(catalog.GPU_MIG_INFO, 1, **parts)] if part else []),
            line(catalog.HOST_MEMORY_AVAILABLE_BYTES, 1),
            line(catalog.HOST_MEMORY_SIZE_BYTES, 4),
            COLLECTOR,
        )
    )


PAGES = {
    "node a": hardware("GPU-a1", "GPU-a2", lost="GPU-a1"),
    "node b": hardware("GPU-b1", "GPU-b2", part="MIG-b11"),
    "server": program("GPU-a1"),
    # And a hook that does not observe, of which there is an alert.
    "trainer": program("MIG-b11") + line(catalog.HOOK_ACTIVE, 0, hook="compiles"),
    "plain": hardware("GPU-c1", "GPU-c2", "GPU-c3", lost="GPU-c3")
    + program("GPU-c1")
    + program("GPU-c2", worker=1),
    # Chips are named by their place: both hosts have one of this name.
    "pod": hardware("TPU-0000:00:05.0") + program("TPU-0000:00:05.0"),
    "other pod": hardware("TPU-0000:00:05.0", "TPU-0000:00:06.0"),
}
JOBS = {
    NODES: ("node a", "node b"),
    "server": ("server",),
    "trainer": ("trainer",),
    "plain": ("plain",),
    "pods": ("pod",),
    "other-pods": ("other pod",),
}


class Handler(BaseHTTPRequestHandler):
    """Answers with the page *name* of *pages*."""

    pages: Mapping[str, str]
    name: str

    def do_GET(self) -> None:
        self.send_response(200 if self.pages[self.name] else 503)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(self.pages[self.name].encode())

    def log_message(self, *_: Any) -> None:
        """Stay silent."""


@pytest.fixture
def pages() -> dict[str, str]:
    """Return the pages, which a test may change."""
    return dict(PAGES)


@pytest.fixture
def places(pages: dict[str, str]) -> Iterator[dict[str, str]]:
    """Serve each page, and return where."""
    with ExitStack() as stack:
        found = {}
        for name in pages:
            handler = type("Page", (Handler,), {"pages": pages, "name": name})
            server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
            stack.callback(server.server_close)
            thread = Thread(target=server.serve_forever, args=(0.05,))
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.shutdown)
            found[name] = f"127.0.0.1:{server.server_address[1]}"
        yield found


@pytest.fixture
def server(
    places: dict[str, str], tmp_path: Path, prometheus: Callable[..., Prometheus]
) -> Prometheus:
    """Return a Prometheus that has scraped every page, and its verdict on it."""
    rules = alerts.render(options=alerts.RuleOptions(scale=60))
    names = (alerts.build.RECORDING, alerts.build.ALERTS)
    for name in names:
        (tmp_path / name).write_text(rules[name])
    found = prometheus(
        {job: [places[name] for name in names] for job, names in JOBS.items()},
        config={"rule_files": [str(tmp_path / name) for name in names]},
    )
    found.until_up()
    return found


def shown(grafana: Grafana, title: str, label: str) -> set[str]:
    """Return the values of *label* in what a panel shows."""
    (panel,) = (one for one in distinct() if one["title"] == title)
    return {
        one["metric"][label]
        for target in panel["targets"]
        for one in grafana.series(target["expr"], instant=target.get("instant", False))
        if label in one["metric"]
    }


def shows(
    server: Prometheus, job: str, title: str, label: str, expected: set[str]
) -> bool:
    """Return whether a panel, with *job* chosen, shows just these values of *label*."""
    return shown(Grafana(server, job), title, label) == expected


READERS = "instance:jaxmon_accelerator_info:uuid"
GPUS = {
    "server": {"GPU-a1"},
    "trainer": {"GPU-b1"},
    "plain": {"GPU-c1", "GPU-c2", "GPU-c3"},
    NODES: {"GPU-a1", "GPU-a2", "GPU-b1", "GPU-b2"},
    "server|plain": {"GPU-a1", "GPU-c1", "GPU-c2", "GPU-c3"},
    "pods": {"TPU-0000:00:05.0"},
}


def test_a_service_shows_the_hardware_that_it_uses(
    server: Prometheus, places: dict[str, str]
) -> None:
    """GPUs that its programs use or its sidecar reads, their hosts, and no others."""
    gpus = "Load by accelerator"
    for job, expected in GPUS.items():
        until(
            partial(shows, server, job, gpus, "uuid", expected),
            f"the accelerators of {job}",
        )
    one_worker = Grafana(server, "plain", worker="1")
    assert shown(one_worker, gpus, "uuid") == {"GPU-c2"}
    chosen = Grafana(server, NODES, gpu="GPU-b2")
    assert shown(chosen, gpus, "uuid") == {"GPU-b2"}

    hosts = {
        "server": {places["node a"]},
        "trainer": {places["node b"]},
        "plain": {places["plain"]},
        "pods": {places["pod"]},
    }
    for job, where in hosts.items():
        for title in (
            "Accelerator memory in use",
            "Accelerators up",
            "Host memory available to programs",
        ):
            until(
                partial(shows, server, job, title, "instance", where),
                f"the hosts of {job} in {title}",
            )


def test_a_service_shows_what_is_down_beside_it(server, places, pages):
    """A selected service shows when its targets and readers of its GPUs are down."""
    down = "Targets that were down"
    assert shown(Grafana(server, ".+"), down, "instance") == set()
    # Who reads what is recorded, while it can be read: the first time before all were.
    for recorded, names in {
        "worker:jaxmon_device_info:uuid": ("server", "trainer"),
        READERS: ("node a", "node b"),
    }.items():
        for name in names:
            server.until_query(f'{recorded}{{instance="{places[name]}"}}')
    pages["node a"] = pages["trainer"] = ""
    for job, expected in {"server": {"node a"}, "trainer": {"trainer"}}.items():
        where = {places[name] for name in expected}
        until(
            partial(shows, server, job, down, "instance", where),
            f"what is down for {job}",
            seconds=240,
        )
    until(
        lambda: (
            "JaxmonTargetDown"
            in shown(Grafana(server, "server"), "Alerts about hardware", "alertname")
        ),
        "the alert about the host of the service",
    )


def test_a_service_shows_the_alerts_about_its_hardware(
    server: Prometheus, pages: dict[str, str]
) -> None:
    """A service shows its alerts, those about its GPUs and their readers, no others."""
    pages["node a"] = pages["node a"].replace(COLLECTOR, COLLECTOR.replace("1.0", "0"))
    lost, degraded = "JaxmonAcceleratorLost", "JaxmonMonitoringDegraded"
    both: set[str] = {lost, degraded}
    # Its own, and about hardware.
    expected: dict[str, tuple[set[str], set[str]]] = {
        "server": (set(), both),
        "trainer": ({degraded}, set()),
        "plain": ({lost}, {lost}),
        NODES: (both, both),
        "pods": (set(), set()),
    }

    def alike() -> bool:
        return all(
            shown(Grafana(server, job), title, "alertname") == names
            for job, (own, hardware) in expected.items()
            for title, names in (
                ("Firing alerts", own),
                ("Alerts over time", own),
                ("Alerts about hardware", hardware),
            )
        )

    until(alike, "the alerts of each service, and no others")
