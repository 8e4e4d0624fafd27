"""Events as records of `logging`, and by OTLP, with the ids of traces."""

import json
from pathlib import Path

import pytest

from tests.helpers.otlp import Receiver, receiver
from tests.helpers.preloaded import run_preloaded


# Settings are such that nothing happens by itself.
BEGIN = """
import json, logging, sys, threading, time
import jax, jaxmon
from jaxmon import threads
class Lines(logging.Handler):
    records = []
    def emit(self, record):
        self.records.append(record)
logging.getLogger("jaxmon.events").addHandler(Lines())
logging.getLogger("jaxmon.events").setLevel(logging.INFO)
def instrument(**settings):
    return jaxmon.instrument(
        **{"port": None, "socket": False, "memory_interval": 0, "time_interval": 0,
           "memory_lines_interval": 0, "otlp": False, "traces": False, **settings})
step = jax.jit(lambda x: x + 1)
def recompile(route="predict"):
    with jaxmon.request(route):
        return step(1.0), step(jax.numpy.ones(3))
def dropped(agent):
    (found,) = [
        value for family in agent.collect() for series, value in family.samples
        if series == 'jaxmon_dropped_total{what="event"}'
    ]
    return found
"""
PRINT = """
jaxmon.uninstrument()
print(json.dumps([
    {k: v for k, v in vars(one).items() if k.startswith(("jaxmon_", "trace_", "span_"))}
    | {"level": one.levelname, "text": one.getMessage(), "created": one.created}
    for one in Lines.records
]))
"""
SPANS = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
trace.set_tracer_provider(TracerProvider())
def traced():
    with trace.get_tracer("program").start_as_current_span("work") as span:
        recompile()
        return f"{span.get_span_context().trace_id:032x}"
"""


def of_recompiles(records):
    """Return the records about recompiles of the program's function."""
    return [one for one in records if one["jaxmon_kind"] == "recompile"]


def test_a_recompile_is_logged_with_cause_and_trace() -> None:
    """
    The program's handlers get a record of what `/debug/events` has: its level, message,
    function, cause and details, and the trace of the request that waited.
    """
    source = f"""{BEGIN}{SPANS}
agent = instrument(log_events=True, traces=None)
before = time.time()
trace_id = traced()
from jaxmon.agent.agent import runtime_of
known = [e for e in runtime_of(agent).context.events.since() if e.kind == "recompile"]
{PRINT}
print(json.dumps([before, time.time(), trace_id, known[0].trace_id, known[0].message]))
"""
    done = run_preloaded("-c", source).ok()
    records, facts = map(json.loads, done.out.splitlines()[-2:])
    before, after, trace, in_log, message = facts
    (one,) = of_recompiles(records)
    assert one["level"] == "INFO"
    assert one["text"] == message
    assert one["jaxmon_cause"]
    assert one["jaxmon_cause"] in one["jaxmon_details"]
    assert one["jaxmon_function"] == "__main__.<lambda>"
    assert one["trace_id"] == trace == in_log
    assert len(one["span_id"]) == 16
    assert before <= one["created"] <= after


def test_nothing_is_logged_unasked() -> None:
    """By default the logger gets nothing, and no thread waits for events."""
    source = f"""{BEGIN}
instrument()
recompile()
assert "jaxmon-events" not in {{one.name for one in threads.running()}}
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
{PRINT}"""
    assert run_preloaded("-c", source).ok().json() == []


def test_a_handler_that_blocks_or_fails_costs_the_program_nothing() -> None:
    """
    The program does not wait for a handler; what it does not take in time is dropped
    and counted, and `uninstrument` returns.
    """
    source = f"""{BEGIN}
held = threading.Event()
class Stuck(logging.Handler):
    def emit(self, record):
        assert record.threadName == "jaxmon-worker"
        held.wait(240)
logging.getLogger("jaxmon.events").addHandler(Stuck())
agent = instrument(log_events=True)
from jaxmon.agent.agent import runtime_of
events = runtime_of(agent).context.events
recompile()
for number in range(3000):
    events.add("warning", None, str(number))
assert 1900 < dropped(agent) < 3000, dropped(agent)
jaxmon.uninstrument()
held.set()
print(json.dumps("done"))
"""
    assert run_preloaded("-c", source).ok().json() == "done"


def test_flush_waits_for_handlers() -> None:
    """A platform may freeze or end the process after that: all handlers have had it."""
    source = f"""{BEGIN}
class Slow(logging.Handler):
    def emit(self, record):
        time.sleep(2)
logging.getLogger("jaxmon.events").handlers.insert(0, Slow())
instrument(log_events=True)
recompile()
jaxmon.flush(240)
print(json.dumps([one.jaxmon_kind for one in Lines.records]), flush=True)
os._exit(0)
"""
    assert "recompile" in run_preloaded("-c", f"import os\n{source}").ok().json()


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_events_are_sent_by_otlp(running: Receiver, protocol: str) -> None:
    """Each event arrives once, with trace ids, also what waits at the end."""
    name = f"sent-{protocol}"
    source = f"""{BEGIN}{SPANS}
instrument(log_events=True, traces=None)
print(traced())
"""
    environ = running.environ(
        protocol, OTEL_SERVICE_NAME=name, OTEL_LOGS_EXPORTER="otlp"
    )
    done = run_preloaded("-c", source, env=environ).ok()
    (one,) = [r for r in running.logs(name) if r["jaxmon.kind"] == "recompile"]
    assert one["trace"] == done.out.split()[-1]
    assert one["severity"] == "INFO"
    assert one["body"]
    assert one["jaxmon.function"] == "__main__.<lambda>"


def test_the_applications_provider_gets_each_event_once(running: Receiver) -> None:
    """A provider and a handler of `logging` together still get an event once."""
    for name, handler in (("alone", False), ("handled", True)):
        source = f"""{BEGIN}
import warnings
from opentelemetry import _logs
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import LoggerProvider, LoggingHandler
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
provider = LoggerProvider()
provider.add_log_record_processor(SimpleLogRecordProcessor(OTLPLogExporter()))
_logs.set_logger_provider(provider)
warnings.simplefilter("ignore")
if {handler}:
    logging.getLogger().addHandler(LoggingHandler(logger_provider=provider))
instrument(log_events=True)
recompile()
jaxmon.uninstrument()
"""
        environ = running.environ(OTEL_SERVICE_NAME=name)
        run_preloaded("-c", source, env=environ).ok()
        records = running.logs(name)
        found = [r for r in records if "recompile" in r.values()]
        assert len(found) == 1, records


def test_a_receiver_of_logs_that_is_down_is_counted() -> None:
    """Failed exports and the events in them are counted, and the program goes on."""
    source = f"""{BEGIN}
agent = instrument(log_events=True)
recompile()
for _ in range(6000):
    if dropped(agent):
        break
    time.sleep(0.02)
page = [s for family in agent.collect() for s in family.samples]
name = 'jaxmon_otlp_exports_total{{signal="logs",outcome="failure"}}'
print(json.dumps([dropped(agent), dict(page)[name]]))
"""
    environ = {
        "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "http://localhost:1/v1/logs",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "0.2",
    }
    lost, failed = run_preloaded("-c", source, env=environ).ok().json()
    assert lost >= 1
    assert failed >= 1


def test_a_receiver_of_logs_that_is_back_is_used_again(tmp_path: Path) -> None:
    """What it refused is counted as lost; the next event arrives, without a restart."""
    book = tmp_path / "otlp"
    book.mkdir()
    source = f"""{BEGIN}
import os
from jaxmon.agent.agent import runtime_of
agent = instrument(log_events=True)
events = runtime_of(agent).context.events
events.add("warning", None, "refused")
for _ in range(6000):
    if dropped(agent):
        break
    time.sleep(0.02)
os.unlink(sys.argv[1])
events.add("warning", None, "accepted")
jaxmon.uninstrument()
"""
    with receiver(book) as found:
        found.trouble("503")
        environ = found.environ(
            OTEL_SERVICE_NAME="back",
            OTEL_LOGS_EXPORTER="otlp",
            OTEL_EXPORTER_OTLP_TIMEOUT="0.3",
        )
        run_preloaded("-c", source, str(book / "trouble"), env=environ).ok()
        assert [one["body"] for one in found.logs("back")] == ["accepted"]
