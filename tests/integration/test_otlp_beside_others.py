"""OTLP where the program uses OpenTelemetry, too."""

import sys

from tests.helpers.processes import ROOT, run_python


COMMAND = (
    "import sys; sys.argv[0] = 'opentelemetry-instrument'\n"
    "from opentelemetry.instrumentation import auto_instrumentation as auto\n"
    "auto.run()"
)
WITH_TRACES = """
import json, threading
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
class Names(Sampler):
    def should_sample(self, parent_context, trace_id, name, *rest, **more):
        drop = name.startswith("dropped")
        return SamplingResult(Decision.DROP if drop else Decision.RECORD_AND_SAMPLE)
    def get_description(self):
        return "names"
class Ended(SpanProcessor):
    names = []
    def on_end(self, span):
        self.names.append(span.name)
provider = TracerProvider(sampler=Names())
provider.add_span_processor(Ended())
trace.set_tracer_provider(provider)
import jax, jaxmon
from jaxmon import threads
from jaxmon.agent.agent import running
from jaxmon.otel.instrumentor import JaxmonInstrumentor
def ours():
    return sorted(one.name for one in threads.running())
jit, before = jax.jit, ours()
step = jax.jit(lambda x: x + 1)
for route in ("kept", "dropped"):
    with jaxmon.request(route):
        step(1.0 if route == "kept" else 2)
seen = Ended.names[:]
JaxmonInstrumentor().uninstrument()
with jaxmon.request("kept"):
    step(1)
print(json.dumps({
    "seen": seen, "later": Ended.names[len(seen):], "threads": [before, ours()],
    "running": running() is not None, "global": trace.get_tracer_provider() is provider,
    "jit": type(jax.jit(lambda x: x)).__module__,
}))
"""


def test_a_programs_own_traces_are_respected_and_uninstrument_leaves_nothing(
    running, tmp_path
):
    """Spans go the program's way only."""
    script = tmp_path / "serve.py"
    script.write_text(WITH_TRACES)
    environ = running.environ(PYTHONPATH=str(ROOT), OTEL_SERVICE_NAME="own-traces")
    done = run_python("-c", COMMAND, sys.executable, str(script), env=environ).ok()
    found = done.json()
    assert "kept" in found["seen"]
    assert any(one.startswith("jax.compile") for one in found["seen"])
    assert not any("dropped" in one for one in found["seen"])
    before, after = found["threads"]
    assert "jaxmon-traces" not in before
    assert after == []
    assert found["later"] == []
    assert (found["running"], found["global"]) == (False, True)
    assert not found["jit"].startswith("jaxmon")
    assert len(running.requests("own-traces")) == 1
