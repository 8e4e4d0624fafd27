"""The summary behind the landing page: sums, rates, joins, hostile input."""

import math
from typing import Any

import pytest

from jaxmon import catalog
from jaxmon.catalog import Metric
from jaxmon.exposition.families import Family, gauge, labels_text
from jaxmon.facts.record import dumps, encoded
from jaxmon.facts.status import UNREAD, CollectorSummary, Summary
from jaxmon_exporter.collectors.synthetic import ACCELERATORS, FUNCTIONS, WORKERS, Demo
from jaxmon_exporter.pages import Live


def relayed(metric: Metric, worker: str, value: float, *labels: object) -> Family:
    """Return one sample as the sidecar relays it."""
    text = labels_text(("worker", *metric.labels), (worker, *labels))
    return Family(metric, [(f"{metric.name}{{{text}}}", value)])


def status(**changes: Any) -> CollectorSummary:
    values = {
        "name": "agents",
        "success": True,
        "polled": True,
        "age": 1.0,
        "duration": 0.1,
        "reason": "",
        "message": "",
        "absent": False,
        "errors": {"error": 2},
    }
    return CollectorSummary(**{**values, **changes})


def summary_of(*families: Family) -> Summary:
    live = Live(lambda: families, version="1.2", run_dir="/run", clock=lambda: 1000.0)
    found = live.summary([status()], UNREAD)
    assert found is not None
    return found


def test_functions_are_summed_over_workers() -> None:
    """Counts of one function in several processes are added up."""
    (function,) = summary_of(
        relayed(catalog.JIT_CALLS, "0", 70, "f"),
        relayed(catalog.JIT_CALLS, "1", 30, "f"),
        relayed(catalog.JIT_CACHE_HITS, "0", 69, "f"),
        relayed(catalog.JIT_CACHE_HITS, "1", 26, "f"),
        relayed(catalog.JIT_CACHE_MISSES, "0", 1, "f"),
        relayed(catalog.JIT_CACHE_MISSES, "1", 4, "f"),
        relayed(catalog.COMPILES, "0", 1, "f", "compiled"),
        relayed(catalog.COMPILES, "1", 3, "f", "compiled"),
        relayed(catalog.COMPILES, "1", 1, "f", "cache_hit"),
        relayed(catalog.COMPILES, "1", 2, "f", "failed"),
        relayed(catalog.RECOMPILES, "1", 3, "f", "shape"),
        relayed(catalog.RECOMPILES, "0", 1, "f", "shape"),
        relayed(catalog.RECOMPILES, "0", 0, "f", "dtype"),
        relayed(catalog.ERRORS, "0", 5, "f", "oom"),
    ).functions
    assert encoded(function) == {
        "name": "f",
        "internal": False,
        "calls": 100,
        "hits": 95,
        "misses": 5,
        "hit_rate": 0.95,
        "compiles": 4,
        "loads": 1,
        "failed_compiles": 2,
        "recompiles": 4,
        "compile_seconds": 0,
        "errors": 5,
        "causes": {"shape": 4},
    }


def test_compile_seconds_add_up_phases_and_ignore_buckets() -> None:
    """Only the sums of the compile histogram make compile time."""
    name = catalog.COMPILE_SECONDS.name
    family = Family(
        catalog.COMPILE_SECONDS,
        [
            (f'{name}_bucket{{worker="0",function="f",phase="trace",le="+Inf"}}', 9),
            (f'{name}_sum{{worker="0",function="f",phase="trace"}}', 1.5),
            (f'{name}_sum{{worker="0",function="f",phase="lower"}}', 0.5),
            (f'{name}_count{{worker="0",function="f",phase="trace"}}', 9),
        ],
    )
    (function,) = summary_of(family).functions
    assert function.compile_seconds == 2.0


def test_hit_rate_is_unknown_without_the_call_layer() -> None:
    """Where no process counts hits the rate is null, not zero."""
    summary = summary_of(relayed(catalog.JIT_CACHE_MISSES, "0", 3, "f"))
    assert summary.functions[0].hit_rate is None
    assert summary.totals.hits is None
    assert summary.totals.hit_rate is None


def test_functions_that_did_nothing_are_not_listed() -> None:
    """Zero-initialised series of a function make no row."""
    summary = summary_of(
        relayed(catalog.ERRORS, "0", 0, "idle", "oom"),
        relayed(catalog.JIT_CALLS, "0", 0, "idle"),
        relayed(catalog.JIT_CALLS, "0", 1, "f"),
    )
    assert [function.name for function in summary.functions] == ["f"]


def test_totals_add_up_functions() -> None:
    """The headline figures are sums over functions, the rate is of the sums."""
    totals = summary_of(
        relayed(catalog.JIT_CALLS, "0", 90, "f"),
        relayed(catalog.JIT_CALLS, "0", 10, "g"),
        relayed(catalog.JIT_CACHE_HITS, "0", 80, "f"),
        relayed(catalog.JIT_CACHE_HITS, "0", 0, "g"),
    ).totals
    assert (totals.calls, totals.hits, totals.hit_rate) == (100, 80, 0.8)


def test_function_names_come_unescaped() -> None:
    """A name with quotes, backslashes and line breaks is shown as it is."""
    name = 'a"b\\n{c}\n<d>'
    (function,) = summary_of(relayed(catalog.JIT_CALLS, "0", 1, name)).functions
    assert function.name == name


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_figures_that_json_lacks_are_left_out(value: float) -> None:
    """NaN and infinities of an agent do not break the document."""
    summary = summary_of(
        relayed(catalog.JIT_CALLS, "0", value, "f"),
        relayed(catalog.JIT_CALLS, "1", 2, "f"),
    )
    assert summary.totals.calls == 2
    dumps(encoded(summary))


def test_agents_carry_what_is_known_of_them() -> None:
    """An agent that answers has versions and memory; one that does not has none."""
    up, down = summary_of(
        Family(
            catalog.AGENT_UP,
            [('jaxmon_agent_up{worker="0"}', 1), ('jaxmon_agent_up{worker="1"}', 0)],
        ),
        relayed(
            catalog.RUNTIME_INFO, "0", 1, "", "0.10.2", "0.10.2", "3.12", "cpu", ""
        ),
        relayed(catalog.PROCESS_START_TIME_SECONDS, "0", 900),
        relayed(catalog.PROCESS_RESIDENT_MEMORY_BYTES, "0", 5e8),
        # The sidecar's own figure, without a worker.
        Family(catalog.PROCESS_RESIDENT_MEMORY_BYTES, [("x", 1)]),
    ).agents
    assert encoded(up) == {
        "worker": "0",
        "up": True,
        "died": False,
        "jax": "0.10.2",
        "platform": "cpu",
        "started": 900,
        "age": 100.0,
        "resident_bytes": 5e8,
        "compiles_in_progress": None,
        "compile_oldest": None,
        "pid": None,
        "program": "",
        "release": "",
        "observed_seconds": None,
        "findings": None,
        "verdict": "",
        "trouble": "",
        "notes": [],
        "doing": "",
        "crashed_seconds": None,
        "ended_seconds": None,
        "unrecorded": False,
        "calling": {},
        "recognised": [],
        "repeated": "",
        "rank": {},
    }
    assert (down.worker, down.up, down.jax) == ("1", False, None)


@pytest.mark.parametrize("up", [0.0, 1.0, None])
def test_accelerator_of_which_nobody_says_so_is_not_lost(up: float | None) -> None:
    """Its source may not know whether it responds to its driver, like DCGM."""
    info, state = catalog.ACCELERATOR_INFO, catalog.ACCELERATOR_UP
    told = [gauge(info, 1, "GPU-1", 0, "nvidia", "H100", "580", "")]
    told += [] if up is None else [gauge(state, up, "GPU-1")]
    (accelerator,) = summary_of(*told).accelerators
    assert accelerator.up is (None if up is None else bool(up))


def test_collectors_show_failures_that_happened() -> None:
    """A collector lists the reasons that occurred, with their counts."""
    (collector,) = summary_of().collectors
    assert collector.errors == {"error": 2}
    assert collector.success is True


def test_demo_fleet_fills_every_list() -> None:
    """The synthetic fleet has functions, agents, accelerators and devices, joined."""
    summary = summary_of(*Demo(clock=lambda: 5000.0).collect())
    assert {one.name for one in summary.functions} == {
        function.name for function in FUNCTIONS
    }
    assert len(summary.agents) == WORKERS
    assert len(summary.accelerators) == len(summary.devices) == ACCELERATORS
    uuids = {one.uuid for one in summary.accelerators}
    assert {one.uuid for one in summary.devices} == uuids
    for one in summary.accelerators:
        assert None not in vars(one).values()
    for function in summary.functions:
        assert 0.9 < (function.hit_rate or 0) < 1
    assert summary.totals.recompiles > 0
