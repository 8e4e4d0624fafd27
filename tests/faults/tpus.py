"""Rows about TPU runtimes, with a stand-in for libtpu's service."""

import signal
import socket
from typing import Any

import pytest

from tests.fakes.tpu import shapes
from tests.fakes.tpu.hosts import Runtime
from tests.faults.matrix import Area
from tests.faults.stage import Page, Sidecar, Stage, errors, success
from tests.helpers.processes import free_port, freeze


AREA = Area("TPU")
CORES = 4
LOST = ("jaxmon_tpu_hlo_queue_size", "jaxmon_accelerator_memory_used_bytes")


def count(page: Page, metric: str) -> int:
    return sum(series.partition("{")[0] == metric for series in page)


def up(page: Page, port: int) -> float | None:
    return page.get(f'jaxmon_tpu_runtime_up{{runtime="{port}"}}')


def whole(sidecar: Sidecar, port: int) -> bool:
    page = sidecar.page()
    return up(page, port) == 1 and all(count(page, name) == CORES for name in LOST)


def started(stage: Stage, port: int, **told: Any) -> Runtime:
    runtime = Runtime(f"127.0.0.1:{port}", {**shapes.host("v4"), **told})
    stage.later(runtime.end)
    return runtime


def sidecar_of(stage: Stage, *ports: int) -> Sidecar:
    pytest.importorskip("grpc")
    return stage.sidecar(
        *("--disable", "host", "--disable", "nvml", "--tpu-interval", "0.2"),
        environ={"TPU_RUNTIME_METRICS_PORTS": ",".join(map(str, ports))},
    )


@AREA.row("libtpu is killed, and another program starts", quick=True)
def killed(stage: Stage) -> None:
    port = free_port()
    sidecar = sidecar_of(stage, port)
    stage.expect(up(sidecar.page(), port) == 0, "runtime_up 0 before")
    stage.expect(success(sidecar.page(), "tpu") == 1, "tpu success 1")
    runtime = started(stage, port)
    stage.until(lambda: whole(sidecar, port), "the figures")
    runtime.end()
    stage.shows(lambda: up(sidecar.page(), port) == 0, "runtime_up 0 after")
    page = sidecar.page()
    stage.expect(not any(count(page, name) for name in LOST), "no metrics")
    started(stage, port)
    stage.recovers(lambda: whole(sidecar, port))


@AREA.row("libtpu hangs (SIGSTOP)")
def stopped(stage: Stage) -> None:
    port = free_port()
    runtime = started(stage, port)
    sidecar = sidecar_of(stage, port)
    stage.until(lambda: whole(sidecar, port), "the figures")
    threads = sidecar.threads()
    freeze(runtime.process.pid)
    stage.shows(
        lambda: errors(sidecar.page(), "tpu", "runtime_slow") > 0,
        "errors runtime_slow counted",
    )
    stage.shows(lambda: up(sidecar.page(), port) == 0, "runtime_up 0")
    stage.expect(success(sidecar.page(), "agents") == 1, "agents success 1")
    # While it waits, gRPC has some of its own.
    stage.expect(sidecar.threads() <= threads + 10, "no threads piled up")
    runtime.process.send_signal(signal.SIGCONT)
    stage.recovers(lambda: whole(sidecar, port))


@AREA.row("one of two runtimes is slow")
def slow(stage: Stage) -> None:
    ports = free_port(), free_port()
    halves = [shapes.host("v4", cores=range(2 * one, 2 * one + 2)) for one in (0, 1)]
    runtimes = [
        started(stage, port, **told) for port, told in zip(ports, halves, strict=True)
    ]
    sidecar = sidecar_of(stage, *ports)
    stage.until(lambda: whole(sidecar, ports[0]), "the figures")
    runtimes[0].tell({**halves[0], "delay": 3})
    stage.shows(
        lambda: count(sidecar.page(), LOST[0]) == CORES // 2, "half of the metrics"
    )
    stage.expect(success(sidecar.page(), "tpu") == 1, "tpu success 1")
    runtimes[0].tell(halves[0])
    stage.recovers(lambda: whole(sidecar, ports[0]))


@AREA.row("libtpu replies garbage")
def garbage(stage: Stage) -> None:
    port = free_port()
    told = shapes.host("v4")
    runtime = started(stage, port)
    sidecar = sidecar_of(stage, port)
    stage.until(lambda: whole(sidecar, port), "the figures")
    runtime.tell({**told, "metrics": {**told["metrics"], shapes.QUEUE: "ffffff"}})
    stage.shows(
        lambda: errors(sidecar.page(), "tpu", "bad_reply") > 0,
        "errors bad_reply counted",
    )
    page = sidecar.page()
    stage.expect(count(page, LOST[1]) == CORES, "the other values")
    runtime.tell(told)
    stage.recovers(lambda: whole(sidecar, port))


@AREA.row("something else listens on the port")
def stranger(stage: Stage) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        sidecar = sidecar_of(stage, port)
        stage.shows(lambda: up(sidecar.page(), port) == 0, "runtime_up 0")
        stage.expect(success(sidecar.page(), "agents") == 1, "agents success 1")
    started(stage, port)
    stage.recovers(lambda: whole(sidecar, port))
