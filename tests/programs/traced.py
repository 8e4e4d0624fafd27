"""
A model server whose requests are traced: FastAPI on uvicorn.

    python tests/programs/traced.py own | application

Prints the ports of server and agent. A line on its standard input ends it: then it
prints, as JSON, when it called the model (nanoseconds since 1970), by the id of the
client's trace, and what jaxmon left behind.
"""

import json
import sys
import threading
import time
from typing import Any

import jax
import numpy as np
import uvicorn
from fastapi import FastAPI, Request
from opentelemetry import trace

import jaxmon
from jaxmon.asgi import Middleware
from jaxmon.threads import running


agent = jaxmon.instrument(port=0, socket=False)
app = FastAPI()
called: dict[str, list[int]] = {}


@jax.jit
def model(x):
    return (x * 2).sum()


@app.get("/predict/{length}")
def predict(length: int, request: Request) -> dict[str, Any]:
    """Call the model; say what the context of an outgoing request would be."""
    began = time.time_ns()
    float(model(np.ones(length, np.float32)))
    key = request.headers["traceparent"].split("-")[1]
    called[key] = [began, time.time_ns()]
    context = trace.get_current_span().get_span_context()
    return {"span": trace.format_span_id(context.span_id)}


@app.get("/fail")
def fail() -> None:
    raise LookupError


def main() -> None:
    if sys.argv[1] == "application":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (
            OTLPSpanExporter,
        )
        from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor

        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
        trace.set_tracer_provider(provider)
        app.add_middleware(Middleware)
        FastAPIInstrumentor.instrument_app(app)
    else:
        app.add_middleware(Middleware)
    config = uvicorn.Config(app, port=0, log_level="critical", access_log=False)
    server = uvicorn.Server(config)
    serving = threading.Thread(target=server.run)
    serving.start()
    while not server.started:
        time.sleep(0.01)
    print(server.servers[0].sockets[0].getsockname()[1], agent.url, flush=True)
    sys.stdin.readline()
    server.should_exit = True
    serving.join()
    jaxmon.uninstrument()
    threads = [one.name for one in running()]
    own = type(trace.get_tracer_provider()).__name__
    print(json.dumps({"called": called, "threads": threads, "provider": own}))


if __name__ == "__main__":
    main()
