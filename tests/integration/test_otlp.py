"""Metrics that an agent pushes by OTLP, as they arrive at a receiver."""

import json
from pathlib import Path

import pytest
import trustme

from tests.helpers.otlp import Receiver, page_samples, receiver
from tests.helpers.preloaded import run_preloaded


# What changes between two looks at it, or by looking.
CHANGING = (
    "process_",
    "python_gc_",
    "jaxmon_scrape_seconds",
    "jaxmon_uptime_seconds",
    "jaxmon_counting_seconds",
    "jaxmon_wall_seconds",
    "jaxmon_container_",
    "jaxmon_otlp_exports",
)

# Settings are such that nothing counts by itself, and a busy machine has time at exit.
BEGIN = """
import json, os, sys, threading, time, urllib.request
import jax, jaxmon
agent = jaxmon.instrument(
    port=0, socket=False, memory_interval=0, memory_lines_interval=0, time_interval=0
)
from jaxmon.agent.agent import runtime_of
from jaxmon.threads import Deadline
runtime_of(agent).context.guard.deadline = Deadline(60)
@jax.jit
def step(x):
    return x + 1
def page():
    with urllib.request.urlopen(agent.url, timeout=60) as response:
        return response.read().decode()
def exports(outcome):
    name = f'jaxmon_otlp_exports_total{{signal="metrics",outcome="{outcome}"}} '
    return int(page().split(name)[1].split()[0])
def until(probe):
    for _ in range(3000):
        if probe():
            return
        time.sleep(0.02)
    sys.exit("waited in vain\\n" + page())
"""
BATCH = f"""{BEGIN}
for value in (1.0, 2.0, 3):
    step(value)
with jaxmon.request("predict"):
    step(4.0)
until(lambda: 'jaxmon_programs_total{{function="__main__.step"}} 2' in page())
print(json.dumps(page()))
"""


def steady(samples):
    """Return the *samples* that do not change by themselves."""
    return {key: n for key, n in samples.items() if not key[0].startswith(CHANGING)}


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_a_short_batch_job_is_counted_once(running: Receiver, protocol: str) -> None:
    """It pushes once, when it exits, exactly what its page had."""
    name = f"batch-{protocol}"
    environ = running.environ(
        protocol,
        OTEL_SERVICE_NAME=name,
        OTEL_RESOURCE_ATTRIBUTES="service.namespace=research,team=a%20b",
        OTEL_EXPORTER_OTLP_HEADERS="x-token=secret",
        OTEL_EXPORTER_OTLP_COMPRESSION="gzip",
        SLURM_JOB_ID="17",
    )
    page = run_preloaded("-c", BATCH, env=environ).ok().json()
    (request,) = running.requests(name)
    expected = steady(page_samples(page))
    assert steady(request.samples()) == expected
    calls = ("jaxmon_jit_calls_total", frozenset({("function", "__main__.step")}))
    assert expected[calls] == 4
    assert request.about["headers"]["x-token"] == "secret"
    if protocol != "grpc":  # gRPC's own affair there
        assert request.about["headers"]["content-encoding"] == "gzip"
        assert request.about["path"] == "/v1/metrics"
    resource = request.resource()
    assert resource["service.namespace"] == "research"
    assert resource["team"] == "a b"
    assert resource["slurm.job.id"] == "17"
    assert resource["service.instance.id"].endswith(f":{resource['process.pid']}")
    assert resource["telemetry.sdk.language"] == "python"


def test_names_are_those_of_the_conventions_on_request(running: Receiver) -> None:
    """With ``otlp_names=semantic`` what has a conventional name is sent under that."""
    environ = running.environ(
        OTEL_SERVICE_NAME="semantic", JAXMON_OTLP_NAMES="semantic"
    )
    run_preloaded("-c", f"{BEGIN}\nstep(1.0)", env=environ).ok()
    (request,) = running.requests("semantic")
    names = set(request.metrics())
    assert {"process.cpu.time", "process.memory.usage", "process.uptime"} <= names
    assert "jaxmon_jit_calls_total" in names
    assert not [one for one in names if one.startswith(("process_cpu", "process_res"))]


def test_deltas_add_up_to_the_page(running: Receiver) -> None:
    """With deltas, what arrives in many exports adds up to what the page has."""
    source = f"""{BEGIN}
for number in range(4):
    step(float(number))
    until(lambda: exports("success") > number)
print(json.dumps(page()))
"""
    environ = running.environ(
        OTEL_SERVICE_NAME="deltas",
        OTEL_METRIC_EXPORT_INTERVAL="50",
        OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE="delta",
    )
    page = page_samples(run_preloaded("-c", source, env=environ).ok().json())
    requests = running.requests("deltas")
    assert len(requests) >= 4
    for name in ("jaxmon_jit_calls_total", "jaxmon_compile_seconds_count"):
        arrived = [
            value
            for request in requests
            for series, value in request.samples().items()
            if series[0] == name
        ]
        assert sum(arrived) == sum(n for key, n in page.items() if key[0] == name) > 0
    # An export may come before the first call.
    calls = [one.metrics().get("jaxmon_jit_calls_total") for one in requests]
    assert {one.sum.aggregation_temporality for one in calls if one} == {1}


@pytest.mark.parametrize(
    ("protocol", "trouble"),
    [
        ("http/protobuf", "503"),
        pytest.param("http/protobuf", "429", marks=pytest.mark.exhaustive),
        ("http/protobuf", "hang"),
        ("grpc", "RESOURCE_EXHAUSTED"),
    ],
)
def test_a_receiver_in_trouble_is_counted_and_tried_again(
    tmp_path: Path, protocol: str, trouble: str
) -> None:
    """Once it accepts again, it gets all."""
    book = tmp_path / "otlp"
    book.mkdir()
    source = f"""{BEGIN}
def explained():
    return runtime_of(agent).overview.whole()["exports"]
until(lambda: step(1.0) is not None and exports("failure") > 1)
failing = explained()
os.unlink(sys.argv[1])
until(lambda: exports("success") > 0)
print(json.dumps([failing, explained(), page()]))
"""
    with receiver(book) as running:
        running.trouble(trouble)
        environ = running.environ(
            protocol,
            OTEL_METRIC_EXPORT_INTERVAL="50",
            OTEL_EXPORTER_OTLP_TIMEOUT="0.3",
            JAXMON_TRACES="false",
        )
        done = run_preloaded("-c", source, str(book / "trouble"), env=environ).ok()
        failing, better, text = done.json()
        assert failing["failed_in_a_row"] > 1
        assert failing["failing_seconds"] > 0
        assert better == {
            "failed_in_a_row": 0,
            "failing_seconds": 0,
            "spans_dropped": 0,
        }
        assert running.refused() > 0
        page = page_samples(text)
        calls = ("jaxmon_jit_calls_total", frozenset({("function", "__main__.step")}))
        assert running.requests()[-1].samples()[calls] == page[calls] > 0


def test_deltas_that_were_refused_are_in_later_ones(tmp_path: Path) -> None:
    """What a receiver refused arrives with the next delta that it accepts, once."""
    book = tmp_path / "otlp"
    book.mkdir()
    source = f"""{BEGIN}
until(lambda: step(1.0) is not None and exports("failure") > 1)
os.unlink(sys.argv[1])
until(lambda: step(1.0) is not None and exports("success") > 1)
print(json.dumps(page()))
"""
    with receiver(book) as running:
        running.trouble("400")
        environ = running.environ(
            OTEL_METRIC_EXPORT_INTERVAL="50",
            OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE="delta",
        )
        done = run_preloaded("-c", source, str(book / "trouble"), env=environ).ok()
        calls = ("jaxmon_jit_calls_total", frozenset({("function", "__main__.step")}))
        arrived = [one.samples()[calls] for one in running.requests()]
        assert len(arrived) > 1
        assert sum(arrived) == page_samples(done.json())[calls] > 2


def test_no_receiver_delays_the_end_no_longer_than_the_deadline() -> None:
    """Without a receiver, the program ends as it would, and says what it lost."""
    source = f"{BEGIN}\nstep(1.0)\nsys.exit(7)"
    done = run_preloaded(
        "-c",
        source,
        env={
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:1",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_METRIC_EXPORT_TIMEOUT": "100",
        },
    )
    assert done.code == 7
    assert "could not push its last metrics by OTLP within 0.1 s" in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    "protocol", [pytest.param("grpc", marks=pytest.mark.exhaustive), "http/protobuf"]
)
def test_tls_is_verified(tmp_path: Path, protocol: str) -> None:
    """A receiver with a certificate is trusted if the variable names its authority."""
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    ca, chain, key = (tmp_path / name for name in ("ca.pem", "chain.pem", "key.pem"))
    authority.cert_pem.write_to_path(str(ca))
    issued.cert_chain_pems[0].write_to_path(str(chain))
    issued.private_key_pem.write_to_path(str(key))
    book = tmp_path / "otlp"
    book.mkdir()
    with receiver(book, str(chain), str(key)) as running:
        environ = running.environ(
            protocol,
            OTEL_METRIC_EXPORT_TIMEOUT="20000",
            # These would replace what OpenTelemetry's variable says.
            REQUESTS_CA_BUNDLE="",
            CURL_CA_BUNDLE="",
        )
        for authorities in (ca, None):
            more = {"OTEL_EXPORTER_OTLP_CERTIFICATE": str(authorities)}
            quick = {"OTEL_METRIC_EXPORT_TIMEOUT": "500"}
            program = f"{BEGIN}\nstep(1.0)"
            env = {**environ, **(more if authorities else quick)}
            run_preloaded("-c", program, env=env).ok()
            assert len(running.requests()) == 1


def test_a_forked_child_pushes_its_own(running: Receiver) -> None:
    """A child leaves its parent's connection alone."""
    source = f"""{BEGIN}
until(lambda: step(1.0) is not None and exports("success") > 0)
for instruments in (False, True):
    sys.stdout.flush()
    child = os.fork()
    if not child:
        if instruments:
            agent = jaxmon.instrument(port=0, socket=False)
            jax.jit(lambda x: x + 2)
            until(lambda: exports("success") > 0)
            jaxmon.uninstrument()
        print(os.getpid(), flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
print(os.getpid())
"""
    # A child that is forked during a call of gRPC cannot use it: that is gRPC's limit.
    environ = running.environ(
        "grpc",
        OTEL_SERVICE_NAME="forks",
        OTEL_METRIC_EXPORT_INTERVAL="2000",
        JAXMON_TRACES="false",
    )
    done = run_preloaded("-c", source, env=environ).ok()
    _, child, parent = map(int, done.out.split())
    pushed = {one.resource()["process.pid"] for one in running.requests("forks")}
    assert pushed == {child, parent}


def test_uninstrument_leaves_nothing(running: Receiver) -> None:
    """No thread stays, later calls push nothing, and another agent may follow."""
    source = f"""{BEGIN}
from jaxmon import threads
before = {{one.name for one in threads.running()}}
assert "jaxmon-otlp" in before
jaxmon.uninstrument()
jaxmon.uninstrument()
assert not threads.running()
jaxmon.instrument(port=0, socket=False, otlp=False)
assert "jaxmon-otlp" not in {{one.name for one in threads.running()}}
names = {{one.metric.name for one in jaxmon.instrument().collect()}}
assert "jaxmon_build_info" in names and "jaxmon_otlp_exports_total" not in names
"""
    environ = running.environ(OTEL_SERVICE_NAME="stopped")
    run_preloaded("-c", source, env=environ).ok()
    assert len(running.requests("stopped")) == 1


def test_an_attempt_that_is_ended_is_waited_for() -> None:
    """No thread stays if the receiver is down, although an attempt takes a moment."""
    source = f"""{BEGIN}
import logging
class Slow(logging.Handler):
    def emit(self, record):
        if "hutdown" in record.getMessage():
            threading.Event().wait(0.3)
logging.getLogger("opentelemetry").addHandler(Slow())
jaxmon.uninstrument()
from jaxmon import threads
print(json.dumps([one.name for one in threads.running()]))
"""
    environ = {
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://localhost:1",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_METRIC_EXPORT_TIMEOUT": "100",
    }
    done = run_preloaded("-c", source, env=environ).ok()
    assert done.json() == []
    assert "could not push its last metrics" in done.err


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
@pytest.mark.parametrize("up", [True, False])
def test_no_thread_of_the_sdk_exports(running, protocol, up):
    """All signals are sent from our threads; HTTP adds none to `threading`."""
    source = f"""{BEGIN}
def others():
    names = [one.name for one in threading.enumerate()]
    return {{one for one in names if not one.startswith("sampler")}}
listed, over = set(), threading.Event()
def sample():
    before = set()
    while not over.wait(0.05):
        # A record is listed for an instant, before a filter sees it.
        listed.update(before & (before := others()))
sampler = threading.Thread(target=sample, name="sampler", daemon=True)
if sys.argv[2] != "grpc":
    sampler.start()
with jaxmon.request("predict"):
    step(1.0)
jaxmon.flush(60)
until(lambda: exports(sys.argv[1]) > 0)
until(lambda: f'{{{{signal="logs",outcome="{{sys.argv[1]}}"}}}} 0' not in page())
over.set()
print(json.dumps(sorted(listed | others())))
"""
    environ = running.environ(
        protocol,
        OTEL_SERVICE_NAME="threads",
        OTEL_EXPORTER_OTLP_TIMEOUT="60" if up else "2",
        OTEL_LOGS_EXPORTER="otlp",
        JAXMON_LOG_EVENTS="1",
    )
    if not up:
        environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://localhost:1"
    outcome = "success" if up else "failure"
    done = run_preloaded("-c", source, outcome, protocol, env=environ).ok()
    assert done.json() == ["MainThread"]


def test_without_the_extra_the_program_runs_and_one_warning_says_so() -> None:
    """An agent that cannot push says what to install, and serves its page."""
    source = f"import sys\nsys.modules['opentelemetry.sdk'] = None\n{BEGIN}\npage()"
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:1"}
    done = run_preloaded("-c", source, env=environ).ok()
    (line,) = [one for one in done.err.splitlines() if "OTLP" in one]
    assert "pip install 'jaxmon[otel]'" in line


UNASKED = """
import json, os, sys
import jax, jaxmon
for environ in json.loads(sys.argv[1]):
    os.environ.update(environ)
    jaxmon.instrument(port=0, socket=False)
    jax.jit(lambda x: x + 1)(1.0)
    jaxmon.uninstrument()
    for name in environ:
        del os.environ[name]
    print([n for n in sys.modules if n.startswith("opentelem")])
"""


def test_nothing_of_opentelemetry_is_loaded_unasked() -> None:
    """An agent that pushes no metrics loads none of OpenTelemetry's packages."""
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:1"}
    environs = [
        {},
        {**endpoint, "OTEL_SDK_DISABLED": "true"},
        {**endpoint, "OTEL_METRICS_EXPORTER": "none"},
        {**endpoint, "JAXMON_OTLP": "false"},
        {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x:1"},
    ]
    environ = {"JAXMON_TRACES": "false"}
    done = run_preloaded("-c", UNASKED, json.dumps(environs), env=environ).ok()
    assert done.out.splitlines() == ["[]"] * len(environs)
