"""
Runs the program that the first argument names, and prints what jaxmon finds as JSON.

The second and third say for how many seconds, and for how many times as long as it
compiled. With a fourth, it is judged while it runs. Attempts of a run are not too young
to be judged: they have no ten minutes.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import urllib.request
from contextlib import suppress

import jaxmon
from jaxmon.agent.agent import runtime_of
from jaxmon.facts.record import encoded
from jaxmon.limits.shared import current
from jaxmon.symptoms.findings import as_fact, find


_SCRAPED = 5.0
name, seconds, times, *hangs = sys.argv[1:]
if name == "replicated":
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count=2"

AGENT = jaxmon.instrument(
    port=0, socket=False, report=True, time_interval=0.02, run_interval=0.1
)

from tests.programs.verdicts import (  # noqa: E402 - they compile when imported
    harness,
    healthy,
    restarted,
    serving,
    slow,
    wrong,
)


def scrape() -> None:
    """Do what Prometheus does."""
    assert AGENT.url is not None
    while True:
        time.sleep(_SCRAPED)
        with suppress(OSError), urllib.request.urlopen(AGENT.url, timeout=60) as page:
            page.read()


def judge() -> None:
    """Print the findings."""
    runtime = runtime_of(AGENT)
    assert runtime is not None
    runtime.refresh()
    snapshot = runtime.overview.judged_by(current())
    print(json.dumps([encoded(as_fact(one)) for one in find(snapshot)]), flush=True)


def judge_and_end() -> None:
    """Do so, and end the process without its report."""
    judge()
    os._exit(0)


programs = {
    **vars(slow),
    **vars(wrong),
    **vars(serving),
    **vars(healthy),
    **vars(restarted),
}
harness.clock.seconds, harness.clock.times = float(seconds), float(times)
threading.Thread(target=scrape, daemon=True).start()
if hangs:
    timer = threading.Timer(float(seconds), judge_and_end)
    timer.daemon = True
    timer.start()
programs[name]()
judge()
