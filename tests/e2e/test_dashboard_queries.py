"""
Every query of every dashboard, asked of a Prometheus that scraped the real thing.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from jaxmon.artifacts import alerts
from jaxmon.artifacts.dashboards import render_all
from jaxmon.catalog import BY_NAME, JIT_CALLS, PROCESS_START_TIME_SECONDS
from tests.fakes.tpu import shapes
from tests.fakes.tpu.hosts import Runtime
from tests.support import ROOT, Prometheus, clean_environ, free_port, http_get, until


PROGRAM = str(ROOT / "tests" / "programs" / "indicators.py")

# An hour is a minute, five minutes are five seconds; thresholds stay.
SCALE = 60

NO_ACCELERATOR = "the host has no accelerator"
NO_ALLOCATOR = "JAX has no allocator figures on the CPU"
NO_MISHAP = "shows mishaps only, and there was none"
NO_TPU = "the host has no TPU, nor does the demo"
OFF = "is off unless a program asks for it"
TPU_PANELS = (
    "TPU duty cycle",
    "TPU programs in the queue",
    "TPU runtimes that answer",
    "TPU execution time",
    "Transfers between TPU slices",
    "Where each TPU core stands",
)
EMPTY_ON_CPU = {
    "Accelerator utilisation": NO_ACCELERATOR,
    "Accelerator memory in use": NO_ACCELERATOR,
    "Power": NO_ACCELERATOR,
    "Temperature": NO_ACCELERATOR,
    "Accelerators that answer": NO_ACCELERATOR,
    "Accelerators": NO_ACCELERATOR,
    "Load by accelerator": NO_ACCELERATOR,
    "Power of its limit": NO_ACCELERATOR,
    "Mean power by energy counter": NO_ACCELERATOR,
    "Temperature by sensor": NO_ACCELERATOR,
    "Cost of 1,000 steps": NO_ACCELERATOR,
    "Tensor cores busy": NO_ACCELERATOR,
    "Multiprocessors busy": NO_ACCELERATOR,
    "Memory bandwidth in use": NO_ACCELERATOR,
    "Accelerators held down": NO_ACCELERATOR,
    "Throttling by reason": NO_ACCELERATOR,
    "NVLink traffic": NO_ACCELERATOR,
    "PCIe traffic": NO_ACCELERATOR,
    "Memory health": NO_ACCELERATOR,
    **dict.fromkeys(TPU_PANELS, NO_TPU),
    "Device memory in use": NO_ALLOCATOR,
    "Device memory by kind": NO_ALLOCATOR,
    "Allocations": NO_ALLOCATOR,
    "Non-finite outputs": OFF,
    "Promotions to float64": NO_MISHAP,
    "Keys used twice": NO_MISHAP,
    "Xid errors": NO_MISHAP,
    "Xid errors by GPU": NO_MISHAP,
    "Memory errors not corrected": NO_MISHAP,
    "Internal errors": NO_MISHAP,
    "Internal errors by process": NO_MISHAP,
}
# The demo has no mishaps of this kind, and leaves this counter out.
EMPTY_IN_DEMO = (
    *(title for title, why in EMPTY_ON_CPU.items() if why in (NO_MISHAP, NO_TPU, OFF)),
    "Allocations",
)

Series = list[dict[str, Any]]


class Grafana:
    """
    Asks Prometheus what Grafana would ask for a dashboard.

    Args:
        server: has the data.
        job: what is chosen for the variable ``job``; everything for the others.
    """

    def __init__(self, server: Prometheus, job: str) -> None:
        self._url = f"{server.url}/api/v1"
        self._variables = {
            "__rate_interval": "15s",
            "__range": "1m",
            "job": job,
            "instance": ".+",
            "worker": ".*",
            "function": ".*",
            "device": ".*",
        }

    def expression(self, text: str) -> str:
        """
        Return *text* with variables filled in; an unknown one is an error.
        """
        return re.sub(r"\$\{?(\w+)\}?", lambda found: self._variables[found[1]], text)

    def series(self, text: str, *, instant: bool) -> Series:
        """
        Return what a query yields now, or over the last half minute.
        """
        now = time.time()
        query = {"query": self.expression(text)}
        data = (
            self._ask("query", **query, time=now)
            if instant
            else self._ask("query_range", **query, start=now - 30, end=now, step=1)
        )
        found: Series = data["result"]
        return found

    def values(self, text: str) -> list[str]:
        """
        Return what a variable's query finds.
        """
        found = re.fullmatch(r"label_values\((.+), (\w+)\)", text)
        assert found is not None
        match = self.expression(found[1])
        values: list[str] = self._ask(f"label/{found[2]}/values", **{"match[]": match})
        return values

    def _ask(self, path: str, **parameters: Any) -> Any:
        answer = json.loads(http_get(f"{self._url}/{path}?{urlencode(parameters)}"))
        assert answer["status"] == "success"
        assert not answer.get("warnings")
        assert not answer.get("infos")
        return answer["data"]


def panels() -> Iterator[dict[str, Any]]:
    """
    Yield every panel of every dashboard.
    """
    for text in render_all().values():
        for panel in json.loads(text)["panels"]:
            yield from panel["panels"] if panel["type"] == "row" else [panel]


def problems(
    grafana: Grafana, panel: dict[str, Any], *, without: tuple[str, ...] = ()
) -> Iterator[str]:
    """
    Say what is wrong with the answers to the queries of *panel*.

    Args:
        grafana: answers.
        panel: as in the dashboard.
        without: labels that a legend may name in vain.
    """
    for target in panel["targets"]:
        name = f"{panel['title']} {target['refId']}"
        found = grafana.series(target["expr"], instant=target.get("instant", False))
        if not found:
            yield f"{name}: no data"
        for one in found:
            samples = one.get("values") or [one["value"]]
            values = [float(value) for _, value in samples]
            if all(map(math.isnan, values)):
                yield f"{name}: nothing but NaN in {one['metric']}"
            if panel["fieldConfig"]["defaults"].get("max") == 1 and not all(
                value <= 1.05 for value in values
            ):
                yield f"{name}: {max(values)} is no ratio"
        legend = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        seen = {
            label for one in found for label, value in one["metric"].items() if value
        }
        if absent := legend - seen - set(without):
            yield f"{name}: no series has the label {sorted(absent)}"


def is_sidecars(panel: Mapping[str, Any]) -> bool:
    """
    Tell whether a panel shows what no agent exports by itself.
    """
    names = re.findall(r"`(\w+)`", panel["description"])
    return any("agent" not in BY_NAME[one].sources for one in names if one in BY_NAME)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """
    Return a stack on which the test puts what must end with it.
    """
    with ExitStack() as stack:
        yield stack


def program(
    run_dir: Path, cache: Path, port: int, stack: ExitStack
) -> Callable[[], None]:
    """
    Start the program that moves every indicator, and return what ends it.
    """
    process = subprocess.Popen(
        [sys.executable, PROGRAM],
        env=clean_environ(
            run_dir,
            PORT=str(port),
            JAX_COMPILATION_CACHE_DIR=str(cache),
            JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0",
        ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def end() -> None:
        if process.returncode is None:
            process.communicate(timeout=30)

    stack.callback(end)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return end


def sidecar(run_dir: Path, stack: ExitStack, *options: str) -> str:
    """
    Start a sidecar and return its address.
    """
    port = free_port()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "jaxmon", "exporter", "--host", "127.0.0.1"),
            *("--port", str(port), "--agents-interval", "0.5"),
            *("--host-interval", "0.5", "--log-level", "error", *options),
        ],
        env=clean_environ(run_dir),
        stderr=subprocess.DEVNULL,
    )
    stack.callback(process.wait, 15)
    stack.callback(process.terminate)
    address = f"127.0.0.1:{port}"

    def answers() -> bool:
        try:
            return bool(http_get(f"http://{address}/-/ready", seconds=1))
        except OSError:
            return False

    until(answers, "the sidecar to be ready")
    return address


def rules(directory: Path) -> dict[str, Any]:
    """
    Write recording rules and alerts at the scale of the test; return the setting.
    """
    files = alerts.render(options=alerts.Options(scale=SCALE))
    names = [name for name in files if name != "alertmanager.yaml"]
    for name in names:
        (directory / name).write_text(files[name])
    return {"rule_files": [str(directory / name) for name in names]}


@pytest.mark.timeout(240)
def test_every_query_has_data_on_a_cpu_host(
    run_dir: Path,
    tmp_path: Path,
    stack: ExitStack,
    prometheus: Callable[..., Prometheus],
) -> None:
    """
    Through a sidecar and straight from the agent, every panel, variable and
    annotation has data, but for those that a CPU cannot fill; these are listed.
    """
    port, dead = free_port(), free_port()
    relayed = sidecar(run_dir, stack)
    direct = f"127.0.0.1:{port}"
    first = program(run_dir, tmp_path / "cache", port, stack)
    # A target that is down burns no budget but has an alert.
    targets = {
        "sidecar": [relayed, f"127.0.0.1:{dead}"],
        "direct": [direct, f"127.0.0.1:{dead}"],
    }
    server = prometheus(targets, config=rules(tmp_path))
    started = f"count({PROCESS_START_TIME_SECONDS.name})"
    until(lambda: server.query(started)[:1] == [({}, 3.0)], "both pages")
    first()
    program(run_dir, tmp_path / "cache", port, stack)

    by_sidecar, by_agent = Grafana(server, "sidecar"), Grafana(server, "direct")
    every = list(panels())
    expected = [one for one in every if one["title"] not in EMPTY_ON_CPU]
    agents = [one for one in expected if not is_sidecars(one)]

    def remaining() -> list[str]:
        return [
            *(
                f"sidecar: {said}"
                for one in expected
                for said in problems(by_sidecar, one)
            ),
            *(
                f"direct: {said}"
                for one in agents
                for said in problems(by_agent, one, without=("worker",))
            ),
        ]

    settled(remaining)
    empty = [one for one in every if one["title"] in EMPTY_ON_CPU]
    assert len(empty) == len(EMPTY_ON_CPU)
    for panel in empty:
        for target in panel["targets"]:
            found = by_sidecar.series(
                target["expr"], instant=target.get("instant", False)
            )
            assert not found, f"{panel['title']} is not empty: {found}"
    for text in render_all().values():
        dashboard = json.loads(text)
        for annotation in dashboard["annotations"]["list"]:
            assert by_sidecar.series(annotation["expr"], instant=False), annotation
            assert by_agent.series(annotation["expr"], instant=False), annotation
        for variable in dashboard["templating"]["list"][1:]:
            assert by_sidecar.values(variable["definition"]), variable
            if variable["name"] != "worker":
                assert by_agent.values(variable["definition"]), variable
    # Where both are scraped, a choice of workers leaves the direct series out.
    jobs = {
        labels["job"]
        for labels, _ in server.query(f'{JIT_CALLS.name}{{job=~".+",worker=~".+"}}')
    }
    assert jobs == {"sidecar"}


@pytest.mark.timeout(180)
def test_panels_of_accelerators_have_data_in_the_demo(
    run_dir: Path, stack: ExitStack, prometheus: Callable[..., Prometheus]
) -> None:
    """
    What stays empty on a CPU has data from a fleet with accelerators, but for mishaps.
    """
    address = sidecar(
        run_dir, stack, *("--demo", "--disable", "nvml", "--price", "H100=2.5")
    )
    server = prometheus({"sidecar": [address]})
    server.until_up()
    grafana = Grafana(server, "sidecar")
    expected = [
        one
        for one in panels()
        if one["title"] in EMPTY_ON_CPU and one["title"] not in EMPTY_IN_DEMO
    ]
    assert len(expected) == len(EMPTY_ON_CPU) - len(EMPTY_IN_DEMO)

    settled(lambda: [said for one in expected for said in problems(grafana, one)])
    (starts,) = (
        annotation
        for text in list(render_all().values())[:1]
        for annotation in json.loads(text)["annotations"]["list"]
        if annotation["name"] == "Starts"
    )
    assert grafana.series(starts["expr"], instant=False) == []


@pytest.mark.timeout(180)
def test_panels_of_tpus_have_data_from_a_runtime(
    run_dir: Path,
    stack: ExitStack,
    prometheus: Callable[..., Prometheus],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    Every panel about TPUs has data from a sidecar beside a program on several slices.
    """
    pytest.importorskip("grpc")
    pytest.importorskip("h2")
    port = free_port()
    monkeypatch.setenv("TPU_RUNTIME_METRICS_PORTS", str(port))
    told = shapes.multislice(shapes.host("7x"))
    runtime = Runtime(f"127.0.0.1:{port}", told)
    stack.callback(runtime.end)
    address = sidecar(run_dir, stack, "--tpu-interval", "0.5")
    server = prometheus({"sidecar": [address]})
    server.until_up()
    grafana = Grafana(server, "sidecar")
    expected = [one for one in panels() if one["title"] in TPU_PANELS]
    assert len(expected) == len(TPU_PANELS)

    def remaining() -> list[str]:
        # Histograms without new observations have no quantile.
        for name in (shapes.EXECUTION, *map(shapes.TRANSFER.format, shapes.TRANSFERS)):
            for one in told["metrics"][name]:
                one["distribution"]["counts"][3] += 1
        runtime.tell(told)
        return [said for one in expected for said in problems(grafana, one)]

    settled(remaining)


def settled(remaining: Callable[[], list[str]], *, seconds: float = 90.0) -> None:
    """
    Wait until no problem remains; fail with those that do.
    """
    deadline = time.monotonic() + seconds
    while found := remaining():
        if time.monotonic() > deadline:
            pytest.fail("\n".join(found), pytrace=False)
        time.sleep(1)
