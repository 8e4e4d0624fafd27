"""What is pushed by OTLP, in a real Prometheus: names, values, rules, panels."""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import URLError

import pytest
import yaml

from jaxmon import catalog
from jaxmon.promql import counter, eq
from jaxmon.promql.events import Evaluation, counted
from jaxmon_alerts import rules as alerts
from jaxmon_alerts.slo.recording import RuleGroup, complete
from tests.helpers.dashboards import Grafana, distinct, is_sidecars, problems, settled
from tests.helpers.otlp import Series, page_samples
from tests.helpers.preloaded import run_preloaded, start_preloaded
from tests.helpers.processes import ROOT, clean_environ, free_port, http_get, until
from tests.helpers.prometheus import Prometheus
from tests.helpers.sidecars import exporters


KINDS = ("prometheus", "vmagent")

_FLAG = "--web.enable-otlp-receiver"
_AGENT = ROOT / ".cache" / "otlp-receiver" / "vmagent"
_SERVICE = ("service.name", "service.namespace", "service.instance.id")
# What Prometheus does itself.
_RELABEL = """\
- source_labels: [service.namespace, service.name]
  separator: /
  regex: /?(.+)
  target_label: job
- source_labels: [service.instance.id]
  target_label: instance
- action: labeldrop
  regex: service[.].+
"""


class Store(NamedTuple):
    """
    Where metrics arrive.

    Attributes:
        server: where they are stored.
        endpoint: where they are pushed to.
    """

    server: Prometheus
    endpoint: str

    def environ(self, **more: str) -> dict[str, str]:
        """Return what a program needs to push here."""
        return {
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": self.endpoint,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            **more,
        }


def prometheus3() -> str:
    """Return the path of a Prometheus that receives OTLP; skip the test without one."""
    for path in (os.environ.get("JAXMON_PROMETHEUS3"), shutil.which("prometheus")):
        # The help says --[no-]web.enable-otlp-receiver.
        if path and _FLAG.removeprefix("--") in _help(path):
            return path
    pytest.skip("no Prometheus with a receiver of OTLP; JAXMON_PROMETHEUS3 names one")


@contextmanager
def store(
    kind: str, prometheus: Callable[..., Prometheus], directory: Path, **config: Any
) -> Iterator[Store]:
    """Start a store of one of `KINDS`, or skip the test without its program."""
    if kind == "prometheus":
        program = prometheus3()
        server = prometheus({}, program=program, options=(_FLAG,), config=config)
        yield Store(server, f"{server.url}/api/v1/otlp/v1/metrics")
        return
    if not _AGENT.is_file():
        pytest.skip("needs vmagent; tools/otlp-receiver downloads it as root on Debian")
    options = ("--web.enable-remote-write-receiver",)
    server = prometheus({}, options=options, config=config)
    with ExitStack() as stack:
        yield Store(server, stack.enter_context(_vmagent(server.url, directory)))


@contextmanager
def _vmagent(server: str, directory: Path) -> Iterator[str]:
    relabelling = directory / "relabel.yaml"
    relabelling.write_text(_RELABEL)
    url = f"http://127.0.0.1:{(port := free_port())}"
    with (directory / "vmagent.log").open("w") as log:
        process = subprocess.Popen(
            [
                _AGENT,
                f"-httpListenAddr=127.0.0.1:{port}",
                f"-remoteWrite.url={server}/api/v1/write",
                f"-remoteWrite.tmpDataPath={directory}/vmagent",
                "-remoteWrite.flushInterval=200ms",
                f"-remoteWrite.relabelConfig={relabelling}",
                "-opentelemetry.promoteScopeMetadata=false",
                "-opentelemetry.promoteAllResourceAttributes=false",
                f"-opentelemetry.promoteResourceAttributes={','.join(_SERVICE)}",
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        until(lambda: _is_healthy(url), "vmagent")
        yield f"{url}/opentelemetry/v1/metrics"
    finally:
        process.terminate()
        process.wait(60)


def _is_healthy(url: str) -> bool:
    try:
        return http_get(f"{url}/health") == "OK"
    except (URLError, ConnectionError):
        return False


def _help(path: str) -> str:
    said = subprocess.run([path, "--help"], capture_output=True, text=True, check=False)
    return said.stdout + said.stderr


SCALE = 60
# Labels that identify the service and are not on a page.
IDENTITY = ("job", "instance", "__name__")
EVERY = '{__name__=~"jaxmon_.+|process_.+"}'

BATCH = """
import json, urllib.request
import jax, jaxmon
agent = jaxmon.instrument(
    port=0, socket=False, memory_interval=0, memory_lines_interval=0, time_interval=0
)
@jax.jit
def step(x):
    return x + 1
for value in (1.0, 2.0, 3):
    step(value)
    with jaxmon.request("predict"):
        step(value)
with urllib.request.urlopen(agent.url, timeout=60) as response:
    print(json.dumps(response.read().decode()))
"""
COUNTED = ("jaxmon_jit_", "jaxmon_compile", "jaxmon_request", "jaxmon_recompiles")
# Of what runs only now and then.
PASSING = ("jaxmon_compiles_in_progress", "jaxmon_compile_oldest_seconds")


@pytest.fixture(params=KINDS)
def stored_in(
    request: pytest.FixtureRequest,
    prometheus: Callable[..., Prometheus],
    tmp_path: Path,
) -> Iterator[Callable[..., Store]]:
    """Return a function that starts a store, with further configuration."""
    with ExitStack() as stack:

        def start(**config: Any) -> Store:
            made = store(request.param, prometheus, tmp_path, **config)
            return stack.enter_context(made)

        yield start


def stored(server: Prometheus, job: str) -> dict[Series, float]:
    """Return the series of *job* that count, without the labels of the service."""
    return {
        (labels["__name__"], frozenset(own(labels).items())): value
        for labels, value in server.query(f'{{job="{job}"}}')
        if labels["__name__"].startswith(COUNTED)
    }


def own(labels: dict[str, str]) -> dict[str, str]:
    found = {name: one for name, one in labels.items() if name not in IDENTITY}
    if "le" in found:  # written in several ways
        found["le"] = str(float(found["le"])).replace("inf", "+Inf")
    return found


def test_a_batch_job_is_stored_under_its_names(stored_in):
    """Series are those of the page; ``job`` and ``instance`` are the service's."""
    found = stored_in()
    env = found.environ(
        OTEL_SERVICE_NAME="train",
        OTEL_RESOURCE_ATTRIBUTES="service.namespace=research,service.instance.id=a-1",
    )
    page = run_preloaded("-c", BATCH, env=env).ok().json()
    expected = {
        key: value
        for key, value in page_samples(page).items()
        if key[0].startswith(COUNTED)
    }
    assert len(expected) > 50
    until(
        lambda: stored(found.server, "research/train") == expected,
        "all series with their values",
    )
    instances = {labels["instance"] for labels, _ in found.server.query(EVERY)}
    assert instances == {"a-1"}


FUNCTION = """
import os, signal, sys
import jax, jaxmon
jaxmon.instrument(serverless=True)
@jax.jit
def double(x):
    return x * 2
@jaxmon.serverless(route="predict", timeout=60)
def handler(event, context):
    return float(double(event))
for event in range(int(sys.argv[1])):
    handler(float(event), None)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_function_that_scales_to_zero_is_counted_once(stored_in, tmp_path):
    """
    Three instances one after another, each killed when its last invocation has
    returned: counted as our objectives count, there is each invocation, each compile
    and each cold start of an instance, once.
    """
    when = Evaluation(interval="1s", delay="5s", memory="5m")
    counters = {
        "test:requests": counter(catalog.REQUESTS),
        "test:compiles": counter(catalog.COMPILES, eq("function", "__main__.double")),
        "test:instances": counter(catalog.INVOCATIONS, eq("instance_start", "cold")),
    }
    rules = [
        {"record": name, "expr": counted(one, when, name).sum("job")}
        for name, one in counters.items()
    ]
    groups = complete([RuleGroup("test", "1s", tuple(rules))])
    path = tmp_path / "counts.yaml"
    path.write_text(yaml.safe_dump({"groups": [it.document() for it in groups]}))
    found = stored_in(rule_files=[str(path)])
    env = found.environ(OTEL_SERVICE_NAME="predict")
    for number in (1, 3, 2):
        done = run_preloaded("-c", FUNCTION, str(number), env=env)
        assert done.code == -signal.SIGKILL, done.err

    def seen() -> dict[str, float]:
        return {
            name: value
            for name in counters
            for _, value in found.server.query(
                f'sum_over_time({name}{{job="predict"}}[10m])'
            )
        }

    expected = {"test:requests": 6, "test:compiles": 3, "test:instances": 3}
    until(lambda: seen() == expected, f"{expected}")


@contextmanager
def program(run_dir: Path, cache: Path, **env: str) -> Iterator[None]:
    """Run the program that moves every indicator."""
    process = start_preloaded(
        str(ROOT / "tests/programs/indicators.py"),
        environ=clean_environ(
            run_dir,
            PORT=str(free_port()),
            JAX_COMPILATION_CACHE_DIR=str(cache),
            JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0",
            OTEL_METRIC_EXPORT_INTERVAL="500",
            **env,
        ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield
    finally:
        process.communicate(timeout=240)


def test_rules_and_dashboards_work_on_what_agent_and_sidecar_push(
    run_dir, tmp_path, stored_in
):
    """
    An agent and a sidecar push, and nothing is scraped: recording rules evaluate, an
    alert fires on the job that is at fault, and panels have data.
    """
    files = alerts.render(options=alerts.RuleOptions(scale=SCALE))
    names = [name for name in files if name != "alertmanager.yaml"]
    for name in names:
        (tmp_path / name).write_text(files[name])
    found = stored_in(rule_files=[str(tmp_path / name) for name in names])
    server = found.server
    with ExitStack() as stack:
        env = found.environ(OTEL_SERVICE_NAME="web")
        stack.enter_context(program(run_dir, tmp_path / "cache", **env))
        start = stack.enter_context(exporters(run_dir))
        pushes = found.environ(OTEL_METRIC_EXPORT_INTERVAL="500")
        start("--otlp", "--demo", **pushes)

        agent, sidecar = Grafana(server, "web"), Grafana(server, "jaxmon-exporter")
        shown = [one for one in distinct() if one["title"] in OF_AGENTS]
        devices = [one for one in distinct() if one["title"] in OF_DEVICES]
        assert not any(map(is_sidecars, shown))
        assert (len(shown), len(devices)) == (len(OF_AGENTS), len(OF_DEVICES))
        settled(
            [
                *(partial(problems, agent, one, without=("worker",)) for one in shown),
                *(partial(problems, sidecar, one) for one in devices),
            ]
        )
        firing = (
            'ALERTS{alertname="JaxmonRequestErrorBudgetBurn",alertstate="firing",'
            'job="web",route="/broken"}'
        )
        server.until_query(firing)
        assert server.failing_rules() == {}
        until(
            lambda: server.query('jaxmon_agent_up{job="jaxmon-exporter"} == 1'),
            "the sidecar to know the agent",
        )


OF_AGENTS = (
    "Requests by outcome",
    "Recompiles by cause",
    "Compile time by function",
    "Where the time goes",
    "Latency of requests",
    "Calls by function",
)
OF_DEVICES = (
    "Utilization by service",
    "Accelerator memory in use",
    "Least utilized accelerators",
)
