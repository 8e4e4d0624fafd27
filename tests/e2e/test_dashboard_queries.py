"""Every query of every dashboard, asked of a Prometheus that scraped the real thing."""

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from jaxmon.catalog import JIT_CALLS, PROCESS_START_TIME_SECONDS
from jaxmon_alerts import rules as alerts
from jaxmon_alerts.slo.site import SERVICE_LABELS
from jaxmon_dashboards.boards import render_all
from jaxmon_exporter.collectors.tpu.runtimes import BYTES_SENT_AGAIN
from tests.fakes.tpu import shapes
from tests.fakes.tpu.hosts import Runtime
from tests.helpers.dashboards import Grafana, distinct, is_sidecars, problems, settled
from tests.helpers.preloaded import start_preloaded
from tests.helpers.processes import ROOT, clean_environ, free_port, http_get, until


PROGRAM = str(ROOT / "tests" / "programs" / "indicators.py")

# An hour is a minute, five minutes are five seconds; thresholds stay.
SCALE = 60

NO_CHECKPOINT = "the program saves nothing with Orbax"
NO_ACCELERATOR = "the host has no accelerator"
NO_ALLOCATOR = "JAX has no allocator statistics on the CPU"
NO_HISTORY = "there is no week before"
NO_MIG = "no GPU is divided"
NO_PUSH = "nothing is pushed by OTLP"
NO_MISHAP = "shows mishaps only, and there was none"
NO_TPU = "the host has no TPU, nor does the demo"
OFF = "is off unless a program asks for it"
ON_SOME_HOSTS = (
    "Container memory vs limit",
    "Container CPU throttling",
    "OOM kills",
    "Host pressure",
    "Free disk space",
    # Compiles are short, and seldom seen.
    "Oldest compile in progress",
    "Oldest compile by process",
    "Processes compiling",
    "Largest processes",
    # Recorded for as long as a process is young.
    "Process restarts",
    # Events, shown when they happen: once, as the program starts, or never.
    "Persistent cache writes and errors",
    # Half a minute of sampled calls, which a busy machine may not leave time for.
    "Slower than before",
    "Device time against the median rank",
    # What would lose least is known after two failures.
    "Time between saves",
    # Columns of accelerators, and of the week before.
    "Services at a glance",
    "Requests, this week and last",
    # A column of pressure, which not every kernel reports; and one of accelerators.
    "Busiest hosts",
    "Services of the fleet",
    # What is down beside a service, of which nothing is here.
    "Targets that were down",
    # Of replicas with enough requests, and ranks that are slower than others.
    "Slowest replicas",
    "Slowest rank",
    "Loops",
    "Stragglers",
    "Step time against the median rank",
)
# By metrics that agents export, too.
OF_SIDECARS = ("Sidecar CPU", "CPU of sidecars", "Memory of sidecars")
TPU_PANELS = (
    "TPU duty cycle",
    "TPU runtimes up",
    "TPU execution time",
    "TPU core position",
    "Traffic between TPU slices",
    "TPU link health",
    "TPU throttling",
)
EMPTY_ON_CPU = {
    "Time of a checkpoint": NO_CHECKPOINT,
    "Checkpoints that failed": NO_CHECKPOINT,
    "Accelerator memory in use": NO_ACCELERATOR,
    "Accelerators up": NO_ACCELERATOR,
    "Load by accelerator": NO_ACCELERATOR,
    "Throttled accelerators": NO_ACCELERATOR,
    "Throttling by reason": NO_ACCELERATOR,
    "NVLink traffic": NO_ACCELERATOR,
    "PCIe traffic": NO_ACCELERATOR,
    "GPU state": NO_ACCELERATOR,
    "SM clock": NO_ACCELERATOR,
    "Power by function": NO_ACCELERATOR,
    "Visible": NO_ACCELERATOR,
    "Lost": NO_ACCELERATOR,
    "Hardware": NO_ACCELERATOR,
    "Mean load": NO_ACCELERATOR,
    "Idle now": NO_ACCELERATOR,
    "Memory in use": NO_ACCELERATOR,
    "Power drawn": NO_ACCELERATOR,
    "Hottest sensor": NO_ACCELERATOR,
    "Price per hour": NO_ACCELERATOR,
    "Accelerators by service": NO_ACCELERATOR,
    "Models and drivers": NO_ACCELERATOR,
    "Utilization by service": NO_ACCELERATOR,
    "Tensor cores in use": NO_ACCELERATOR,
    "Least utilized accelerators": NO_ACCELERATOR,
    "Temperature margin": NO_ACCELERATOR,
    "Memory bandwidth of accelerators": NO_ACCELERATOR,
    "Utilization": NO_ACCELERATOR,
    "Cost per hour": NO_ACCELERATOR,
    "Cost of 1,000 requests": NO_ACCELERATOR,
    "Cost of a million items": NO_ACCELERATOR,
    "MIG memory in use": NO_MIG,
    "Ranks behind or missing, by NCCL": NO_ACCELERATOR,
    "Bus bandwidth of collectives": NO_ACCELERATOR,
    "Ranks that arrive late at collectives": NO_MISHAP,
    "Link errors": NO_MISHAP,
    **dict.fromkeys(TPU_PANELS, NO_TPU),
    "Device memory in use": NO_ALLOCATOR,
    "Device memory by kind": NO_ALLOCATOR,
    "Non-finite outputs": OFF,
    "Web configuration": OFF,
    "Invocations by instance start": OFF,
    "Instance start, p50 and p95": OFF,
    "Promotions to float64": NO_MISHAP,
    "PRNG key reuse": NO_MISHAP,
    "Warnings of JAX": NO_MISHAP,
    "Spikes of logged values": NO_MISHAP,
    "Xid errors": NO_MISHAP,
    "Xid errors by GPU": NO_MISHAP,
    "Uncorrectable memory errors": NO_MISHAP,
    "Functions with different programs": NO_MISHAP,
    "Processes that crashed": NO_MISHAP,
    "Internal errors by process": NO_MISHAP,
    "Failed exports": NO_MISHAP,
    "Memory health": NO_MISHAP,
    "Inactive hooks by process": NO_MISHAP,
    "Hosts with silent agents": NO_MISHAP,
    "Stuck ranks": NO_MISHAP,
    "Replicas that stand out": NO_MISHAP,
    "Alerts about hardware": NO_MISHAP,
    "Deviations of one device": NO_MISHAP,
}
# Variables.
OF_GPUS = ("gpu", "gpus")
# Variables whose labels this Prometheus does not add.
OF_SITES = SERVICE_LABELS
# The demo has no mishaps of this kind, and leaves this counter out.
SELDOM = (NO_CHECKPOINT, NO_HISTORY, NO_MIG, NO_MISHAP, NO_PUSH, NO_TPU, OFF)
EMPTY_IN_DEMO = (
    *(title for title, why in EMPTY_ON_CPU.items() if why in SELDOM),
    # No host has an alert.
    "Hardware",
    # One query for GPUs, one for TPUs.
    "Memory bandwidth of accelerators",
    # Its figures are of accelerators alone: none serves or trains.
    "Cost of 1,000 requests",
    "Cost of a million items",
)
# Nothing changes while the test runs.
UNCHANGED = ("Versions", "Programs", "Pages")


def program(
    run_dir: Path, cache: Path, port: int, stack: ExitStack
) -> Callable[[], None]:
    """Start the program that moves every indicator, and return what ends it."""
    process = start_preloaded(
        PROGRAM,
        environ=clean_environ(
            run_dir,
            PORT=str(port),
            JAXMON_RELEASE="v1",
            JAXMON_RUN_STATE=str(cache.with_name("run")),
            JAX_COMPILATION_CACHE_DIR=str(cache),
            JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0",
        ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )

    def end() -> None:
        if process.returncode is None:
            process.communicate(timeout=240)

    stack.callback(end)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return end


def sidecar(run_dir: Path, stack: ExitStack, *options: str) -> str:
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
    """Write recording rules and alerts at the scale of the test; return the setting."""
    files = alerts.render(options=alerts.RuleOptions(scale=SCALE))
    names = [name for name in files if name != "alertmanager.yaml"]
    # A program is young for 3 or 10 seconds then, too few for a busy machine to scrape
    # it meanwhile.
    recording = files["recording.yaml"]
    for metric, seconds in (("collector_success", 3), ("runtime_info", 10)):
        young = f"jaxmon_{metric}) < {seconds})"
        assert recording.count(young) == 1
        longer = young.replace(f"{seconds})", f"{seconds * SCALE})")
        recording = recording.replace(young, longer)
    files["recording.yaml"] = recording
    for name in names:
        (directory / name).write_text(files[name])
    return {"rule_files": [str(directory / name) for name in names]}


def test_every_query_has_data_on_a_cpu_host(run_dir, tmp_path, stack, prometheus):
    """Panels, variables and annotations have data, but those listed for a CPU."""
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
    every = list(distinct())
    expected = [
        one
        for one in every
        if one["title"] not in EMPTY_ON_CPU and one["title"] not in ON_SOME_HOSTS
    ]
    agents = [
        one
        for one in expected
        if not is_sidecars(one) and one["title"] not in OF_SIDECARS
    ]

    settled(
        [
            *(partial(problems, by_sidecar, one) for one in expected),
            *(partial(problems, by_agent, one, without=("worker",)) for one in agents),
        ]
    )
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
            if "expr" not in annotation:
                continue
            for grafana in (by_sidecar, by_agent):
                found = grafana.series(annotation["expr"], instant=False, seconds=600)
                assert found or annotation["name"] in UNCHANGED, annotation
        declared = dashboard["templating"]["list"]
        for variable in [one for one in declared if one["type"] == "query"]:
            if variable["name"] in (*OF_GPUS, *OF_SITES):
                assert by_sidecar.values(variable) == [], variable
                continue
            assert by_sidecar.values(variable), variable
            if variable["name"] not in ("worker", "host"):
                assert by_agent.values(variable), variable
    # Where both are scraped, a choice of workers leaves the direct series out.
    jobs = {
        labels["job"]
        for labels, _ in server.query(f'{JIT_CALLS.name}{{job=~".+",worker=~".+"}}')
    }
    assert jobs == {"sidecar"}


def test_panels_of_accelerators_have_data_in_the_demo(
    run_dir, tmp_path, stack, prometheus
):
    """What is empty on a CPU has data from a fleet of accelerators, mishaps aside."""
    address = sidecar(
        run_dir, stack, *("--demo", "--disable", "nvml", "--price", "H100=2.5")
    )
    server = prometheus({"sidecar": [address]}, config=rules(tmp_path))
    server.until_up()
    grafana = Grafana(server, "sidecar")
    expected = [
        one
        for one in distinct()
        if one["title"] in EMPTY_ON_CPU and one["title"] not in EMPTY_IN_DEMO
    ]
    assert len(expected) == len(EMPTY_ON_CPU) - len(EMPTY_IN_DEMO)

    settled([partial(problems, grafana, one) for one in expected])
    (starts,) = (
        annotation
        for annotation in json.loads(render_all()["oncall.json"])["annotations"]["list"]
        if annotation["name"] == "Starts"
    )
    assert grafana.series(starts["expr"], instant=False) == []


def test_panels_of_tpus_have_data_from_a_runtime(
    run_dir, stack, prometheus, monkeypatch
):
    """Each panel about TPUs has data from a sidecar beside a program on many slices."""
    pytest.importorskip("grpc")
    port = free_port()
    monkeypatch.setenv("TPU_RUNTIME_METRICS_PORTS", str(port))
    told = shapes.multislice(shapes.host("7x"))
    told["metrics"][BYTES_SENT_AGAIN] = [{"counter": 5}]
    runtime = Runtime(f"127.0.0.1:{port}", told)
    stack.callback(runtime.end)
    address = sidecar(run_dir, stack, "--tpu-interval", "0.5")
    server = prometheus({"sidecar": [address]})
    server.until_up()
    grafana = Grafana(server, "sidecar")
    expected = [one for one in distinct() if one["title"] in TPU_PANELS]
    assert len(expected) == len(TPU_PANELS)

    def observe() -> None:
        # Histograms without new observations have no quantile.
        for name in (shapes.EXECUTION, *map(shapes.TRANSFER.format, shapes.TRANSFERS)):
            for one in told["metrics"][name]:
                one["distribution"]["counts"][3] += 1
        runtime.tell(told)

    settled([partial(problems, grafana, one) for one in expected], before=observe)
