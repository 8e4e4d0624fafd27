"""One limit in ``slo.yaml``, and all that judges by it."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from jaxmon import catalog
from jaxmon.cli.host import HostReader as Terminal
from jaxmon.cli.host import Sidecar
from jaxmon.cli.main import main
from jaxmon.errors import ConfigFileError
from jaxmon.exposition.encode import encode
from jaxmon.exposition.families import gauge
from jaxmon.facts.record import dumps, encoded
from jaxmon.host.http.session import Session
from jaxmon.limits import LIMITS, Limits, shared
from jaxmon_alerts import rules as alerts
from jaxmon_alerts import slo
from tests.helpers.findings import GIB, HEALTHY
from tests.helpers.preloaded import run_preloaded
from tests.helpers.processes import until
from tests.helpers.sidecars import Host


# 60 % of the device: no fault, unless the limit is lower.
PAGE = encode(
    [
        gauge(catalog.DEVICE_MEMORY_BYTES, 60 * GIB, "0", "in_use"),
        gauge(catalog.DEVICE_MEMORY_BYTES, 100 * GIB, "0", "limit"),
        gauge(catalog.DEVICE_INFO, 1, "0", "gpu", "H100", "0", "", ""),
        gauge(catalog.STEP_AGE_SECONDS, 0.1, "train"),
    ]
)
OVERVIEW = {
    **HEALTHY,
    "memory": {"devices": [{"device": 0, "in_use": 60 * GIB, "limit": 100 * GIB}]},
}
FULL = "60 % of 100 GiB in use"


@pytest.fixture
def host(run_dir: Path) -> Iterator[Host]:
    with ExitStack() as stack:
        found = Host(run_dir, stack)
        found.agent(0, OVERVIEW, metrics=PAGE)
        yield found


def screens(run_dir: Path, *options: str) -> list[bool]:
    """Return whether `explain`, `ps` and the bundle find that memory is nearly full."""

    def said(*words: str) -> Any:
        done = CliRunner().invoke(main, [*words, f"--run-dir={run_dir}", *options])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    explained = said("explain", "--json")
    listed = said("ps", "--json", "--seconds=0")
    report = said("report", "--json")
    return [
        any(one["topic"] == "memory" for one in explained["findings"]),
        FULL in json.dumps(listed["processes"]),
        FULL in json.dumps(report["answer"]),
    ]


def top(url: str, limits: Limits | None = None) -> str:
    """Return what `jaxmon top --url` answers, first of all."""
    host = Terminal(Sidecar(Session("sidecar", url), url), limits)
    host.poll()
    return dumps(encoded(host.summary().answer))


def test_one_limit_moves_the_alert_and_all_screens(host, exporter, tmp_path):
    """The sidecar gets the file that the alerts are built from, and nobody else."""
    path = tmp_path / "slo.yaml"
    path.write_text(slo.default().replace("device_memory: 90%", "device_memory: 50%"))
    [rule] = [
        one
        for group in yaml.load(
            alerts.render(slo.load(path))["alerts.yaml"], Loader=yaml.CSafeLoader
        )["groups"]
        for one in group["rules"]
        if one.get("alert") == "JaxmonDeviceMemoryHigh"
    ]
    assert rule["expr"].endswith("> 0.5")
    assert screens(host.run_dir) == [False, False, False]
    assert screens(host.run_dir, f"--limits={path}") == [True, True, True]

    running = exporter("--limits", str(path), "--agents-interval", "0.2")
    until(lambda: FULL in json.dumps(running.summary()["answer"]), "the reason")
    until(lambda: running.summary()["agents"][0]["findings"], "the findings")
    (agent,) = running.summary()["agents"]
    assert [one["topic"] for one in agent["findings"]] == ["memory"]
    assert screens(host.run_dir) == [True, True, True]
    # From another host as well, unless other limits are given there.
    assert FULL in top(running.url)
    assert FULL not in top(running.url, Limits())
    assert running.stop() == 0

    # One that was given none judges by the defaults, and so do the others.
    running = exporter("--agents-interval", "0.2")
    running.until_ready()
    assert running.summary()["answer"]["state"] == "fine"
    assert screens(host.run_dir) == [False, False, False]


PROGRAM = """
import os, time
import jax, jaxmon
import jax.numpy as jnp

jaxmon.instrument(port=None, report=True)
step = jax.jit(lambda x: x * 2)
began = time.monotonic()
for size in range(1, 5):
    step(jnp.ones(size))
# On a busy machine, too, they are few calls, and a small part of the time.
for _ in range(60):
    step(jnp.ones(size))
if "LONG" in os.environ:
    time.sleep(12 * (time.monotonic() - began))
"""


def test_a_program_judges_by_what_the_sidecar_was_given(run_dir, tmp_path):
    """Three recompiles are few, unless a file says otherwise."""
    own = tmp_path / "limits.json"
    own.write_text('{"schema": 1, "limits": {"recompile_storm": 2}}')
    broken = tmp_path / "broken.json"
    broken.write_text('{"schema": 1, "limits": {"recompile_storm": "many"}}')

    def report(**env: str) -> str:
        done = run_preloaded("-c", PROGRAM, run_dir=run_dir, env=env).ok()
        return " ".join(done.err.split())

    assert "was recompiled" not in report(LONG="1")
    assert "was recompiled" in report(JAXMON_LIMITS=str(own))
    # Only the run directory need not have such a file.
    absent = report(JAXMON_LIMITS=str(tmp_path / "absent" / shared.NAME))
    assert "No such file or directory; judging by the default limits" in absent
    text = report(JAXMON_LIMITS=str(broken), LONG="1")
    assert "recompile_storm is 'many', not a number above 0; judging by" in text
    assert "was recompiled" not in text
    shared.publish(run_dir, Limits(recompile_storm=2))
    assert "was recompiled" in report()


@pytest.mark.parametrize(
    ("text", "problem"),
    {
        "[]": "expected",
        "{": "not JSON: line 1",
        '{"schema": 2, "limits": {}}': "upgrade it",
        '{"schema": 1, "limits": {"device_memory": 90}}': "device_memory is 90, not a ",
        '{"schema": 1, "limits": {"stuck_after": 900}}': "is not a duration such as",
        '{"schema": 1, "limits": {"recompiles": 1e999}}': "not JSON",
    }.items(),
)
def test_a_file_that_is_no_good_is_refused(text, problem, tmp_path):
    """Its problem is said; values never reach a judgement."""
    path = tmp_path / "limits.json"
    path.write_text(text)
    with pytest.raises(ConfigFileError, match=problem):
        shared.read(path)


def test_what_is_published_is_read(run_dir: Path) -> None:
    """Each limit, whatever its form; of a later release, those that are known."""
    forms = {"count": 7.5, "ratio": 0.25, "duration": "45m"}
    changed = {name: forms[one.form] for name, one in LIMITS.items()}
    shared.publish(run_dir, Limits(**changed))
    assert shared.current(run_dir) == Limits(**changed)

    path = run_dir / shared.NAME
    document = json.loads(path.read_text())
    document["limits"]["of_later"] = "x"
    path.write_text(json.dumps(document))
    assert shared.current(run_dir) == Limits(**changed)
    shared.publish(run_dir, Limits())
    assert not path.exists()
    assert shared.current(run_dir) == Limits()
