"""
A program that provokes recompiles, for the test of their causes.

Each case prepares a function and returns the call that makes JAX compile again. What
JAX compiles meanwhile is counted by a listener of the program's own. At the end it
prints, for each case, that count next to what jaxmon reported, and the counters. It
runs on every supported JAX, and says which cases this one has not got.
"""

from __future__ import annotations

import importlib
import json
import os
import urllib.request


os.environ["XLA_FLAGS"] = " ".join(
    (os.environ.get("XLA_FLAGS", ""), "--xla_force_host_platform_device_count=8")
)
os.environ["JAX_PLATFORMS"] = "cpu"

import jax

import jaxmon
import jaxmon.agent.events as limits
from jaxmon.agent.guard import Guard
from tests.helpers import inside
from tests.programs.recompiles.cases import CASES


HERE = "tests.programs.recompiles"
MODULES = (
    "shapes",
    "dtypes",
    "statics",
    "structures",
    "places",
    "settings",
    "functions",
    "several",
    "transformed",
    "pmaps",
    "none",
)

for module in MODULES:
    importlib.import_module(f"{HERE}.{module}")

compiles = 0


def listen(event: str, _: float, **__: object) -> None:
    global compiles
    compiles += event == "/jax/core/compile/backend_compile_duration"


Guard.strict = True
limits.LIMIT = 10_000  # keep every event
agent = jaxmon.instrument(port=0, socket=False, memory_interval=0)
jax.monitoring.register_event_duration_secs_listener(listen)
events = inside.events(agent)
found, absent = {}, []
for name, prepare in CASES.items():
    try:
        again = prepare()
    except AttributeError:
        absent.append(name)
        continue
    before, known = compiles, max((e.number for e in events.since()), default=0)
    again()
    told = [e for e in events.since(known) if e.kind in ("recompile", "miss")]
    told = [e for e in told if str(e.function).startswith(HERE)]
    found[name] = {
        "compiles": compiles - before,
        "events": [
            {"kind": e.kind, "function": e.function, "message": e.message, **e.details}
            for e in told
        ],
    }

every = [(e.function, e.details["cause"]) for e in events.since(0, "recompile")]
assert agent.url is not None
page = urllib.request.urlopen(agent.url, timeout=60).read().decode()
print(json.dumps({"cases": found, "absent": absent, "told": every, "page": page}))
jaxmon.uninstrument()
