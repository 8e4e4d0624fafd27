"""The live page on the port of a program, against the program's own books."""

import json
import re
from pathlib import Path

import pytest

from tests.helpers.preloaded import run_preloaded


CONFIDENTIAL = "hunter2-in-an-argument"

PROGRAM = f"""
import json, os, time, urllib.request
import jaxmon
agent = jaxmon.instrument(port=0)
import jax, numpy as np

def get(path):
    with urllib.request.urlopen(agent.url.replace("/metrics", path), timeout=60) as one:
        return one.read().decode()

@jax.jit
def double(x):
    return x * 2

def handle(number):
    with jaxmon.request("POST /predict") as request:
        double(np.ones(1 + number % 4, np.float32))
        if number % 5 == 0:
            request.outcome = "error"

truth = {{"pid": os.getpid(), "failed": 0, "cold": 4, "finished": 0}}
began = time.monotonic()
for number in range(800):
    handle(number)
    truth["finished"] += 1
    truth["failed"] += number % 5 == 0
for batch in jaxmon.steps(range(30)):
    double(np.ones(9, np.float32))
jaxmon.batch("POST /predict", size=3, capacity=4)
waiting = jaxmon.queue("prompts")
waiting.set(6)
secret = {CONFIDENTIAL!r}
try:
    double(secret)
except TypeError:
    pass
summary, history = json.loads(get("/api/summary")), json.loads(get("/api/history"))
print(json.dumps([truth, summary, history, get("/"), os.path.basename(__file__)]))
"""


def test_page_of_a_program_equals_its_books(run_dir: Path, tmp_path: Path) -> None:
    """
    What a program did is on its own port, first that its requests fail, and nothing
    that identifies its data, its files or its command line.
    """
    script = tmp_path / "serve_secretly.py"
    script.write_text(PROGRAM)
    out = run_preloaded(str(script), run_dir=run_dir).ok().out
    truth, summary, history, page, name = json.loads(out.splitlines()[-1])

    (route,) = summary["requests"]
    assert (route["total"], route["failed"]) == (truth["finished"], truth["failed"])
    assert (route["recent"], route["recent_failed"]) == (800, truth["failed"])
    assert route["error_ratio"] == 0.2
    assert route["cold_ratio"] * 800 == pytest.approx(truth["cold"])
    assert route["cold"]["count"] + route["warm"]["count"] + truth["failed"] == 800
    assert route["in_progress"] == 0
    (loop,) = summary["loops"]
    assert loop["steps"] == 30
    assert loop["age"] is None
    assert summary["queues"] == [{"queue": "prompts", "workers": ["0"], "depth": 6}]
    assert summary["batches"][0]["fill"] == 0.75
    assert summary["answer"]["state"] == "failing"
    said = r"No: 160 of 800 requests to POST /predict failed in the last \w+"
    assert re.match(said, summary["answer"]["text"])
    (agent,) = summary["agents"]
    assert (agent["worker"], agent["up"], agent["pid"]) == ("0", True, truth["pid"])
    assert 0 < agent["age"] < 600
    users = [one["name"] for one in summary["functions"] if not one["internal"]]
    assert users == ["__main__.double"]
    # The same holds for what may be read there as for the metrics.
    assert agent["program"] == ""
    assert agent["findings"] is None
    trouble = summary["findings"]["trouble"]
    assert "not shown on a program's own port" in trouble
    assert "run `jaxmon explain 0` on its host" in trouble
    everything = json.dumps([summary, history]) + page
    for secret in (CONFIDENTIAL, name, str(tmp_path)):
        assert secret not in everything
    assert len(history["times"]) == 1
    assert page.startswith("<!doctype html>")
