"""
The live page and the alerts, on the same facts: at, below and above each limit.

What pages is failing, what is a ticket is degraded, and what is neither is neither,
unless the page says that one follows. What grows is compared when it is due, and an
evaluation later; what stays after an hour, when no alert waits any more.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from jaxmon import catalog
from jaxmon.catalog import Metric
from jaxmon.exposition.families import Family, gauge, series
from jaxmon.symptoms.findings import SYMPTOMS
from jaxmon.symptoms.symptom import Symptom
from tests.alerts.promtool import evaluate, interval, needed, shipped
from tests.alerts.scenes import (
    WHERE,
    Scene,
    checkpoint,
    constant,
    counted,
    counting,
    crashed,
    late_compiles,
    reasons,
    trained,
)
from tests.helpers.findings import function, ledger
from tests.helpers.processes import ROOT
from tests.helpers.sidecars import ROUTE, START, Worker, reading, status


LIMIT = 80 * 2**30
BEGAN, COMPILES = catalog.UPTIME_SECONDS, catalog.COMPILE_OLDEST_SECONDS
RUNS, ENDED = catalog.ACTIVITY_RUNNING_SECONDS, catalog.ACTIVITY_AGE_SECONDS
EVALUATED = ("stalled", (3540, 3780))
FAILED = (0.0, 0.0009, 0.001, 0.002, 0.003, 0.0032)
PROCESS = {"observed_seconds": 3600.0, "now": 1000.0}


def memory(part: float) -> Scene:
    """Device memory: the ticket after ten minutes is on the page at once."""
    worker = trained()
    worker.set(catalog.DEVICE_INFO, 1, "0", "gpu", "H100", "0", "", "")
    worker.set(catalog.DEVICE_MEMORY_BYTES, part * LIMIT, "0", "in_use")
    worker.set(catalog.DEVICE_MEMORY_BYTES, LIMIT, "0", "limit")
    name = f'jaxmon_device_memory_bytes{{{WHERE},device="0",kind="%s"}}'
    return Scene(
        {
            name % ("%s", "in_use"): constant(round(part * LIMIT)),
            name % ("%s", "limit"): constant(LIMIT),
        },
        reasons(worker),
    )


def compile_stuck(age: float) -> Scene:
    worker = trained()
    worker.set(catalog.COMPILE_OLDEST_SECONDS, age)
    name = f"jaxmon_compile_oldest_seconds{{{WHERE}}}"
    return Scene({name: "0+60x70"}, reasons(worker), age)


def stalled(
    age: float, *, step: float = 0.1, beside: Metric = BEGAN, label: str = "", at=0
) -> Scene:
    """A loop since its last step, and what its process does or did *beside*."""
    worker, every = Worker(), f'{{{WHERE},loop="train"}}'
    worker.steps(100, step)
    worker.set(catalog.STEP_AGE_SECONDS, age, "train")
    worker.set(beside, age - at, *filter(None, [label]))
    labels = f'{WHERE},activity="{label}"' if label else WHERE
    found = {
        f"{beside.name}{{{labels}}}": f"0x{at // 60} 60+60x70",
        f"jaxmon_step_age_seconds{every}": "0+60x70",
        f"jaxmon_step_seconds_sum{every}": constant(100 * step),
        f"jaxmon_step_seconds_count{every}": constant(100),
    }
    return Scene(found, reasons(worker), age)


def hanging(age: float, refused: int = 0) -> Scene:
    """The oldest is so old; meanwhile, so many a minute are refused."""
    worker = Worker()
    before = reading(worker, at=START + 540)
    worker.requests(refused, "client_error")
    worker.set(catalog.REQUESTS_IN_PROGRESS, 3, ROUTE)
    worker.set(catalog.REQUEST_OLDEST_SECONDS, age, ROUTE)
    where, of = f'{WHERE},route="{ROUTE}"', 'outcome="client_error",start="warm"'
    found = {f"jaxmon_request_oldest_seconds{{{where}}}": "0+60x70"}
    found[f"jaxmon_requests_total{{{where},{of}}}"] = counting(refused)
    return counted(found, status(worker, before=before).answer.reasons)._replace(at=age)


def given_up(number: float) -> Scene:
    """So many in ten minutes, each after two seconds; some succeeded days ago."""
    worker = Worker()
    worker.requests(100)
    earlier = reading(worker, at=START)
    worker.requests(int(number), "client_error", took=2.0)
    labels = f'{WHERE},route="{ROUTE}",outcome="%s",start="warm"'
    name, took = f"jaxmon_requests_total{{{labels}}}", "jaxmon_request_seconds"
    found = {
        name % ("%s", "success"): constant(100),
        name % ("%s", "client_error"): counting(number / 10),
    }
    for part, rate in (("_sum", number / 5), ("_count", number / 10)):
        found[f"{took}{part}{{{labels}}}" % ("%s", "client_error")] = counting(rate)
    reasons = status(worker, earlier=earlier, before=earlier).answer.reasons
    return counted(found, reasons)


def requests(
    every: int, part: float, *, outcome: str = "success", start: str = "warm"
) -> Scene:
    """So many requests a minute, a *part* of them with that outcome and start."""
    worker, some = Worker(), round(part * every)
    earlier = reading(worker, at=START)
    worker.requests(9 * (every - some))
    worker.requests(9 * some, outcome, start)
    before = reading(worker, at=START + 540)
    worker.requests(every - some)
    worker.requests(some, outcome, start)
    name = f'jaxmon_requests_total{{{WHERE},route="{ROUTE}",outcome="%s",start="%s"}}'
    return counted(
        {
            name % ("%s", "success", "warm"): counting(every - some),
            name % ("%s", outcome, start): counting(some),
        },
        status(worker, before=before, earlier=earlier).answer.reasons,
    )


def few_failing(number: float) -> Scene:
    """So many in ten minutes, of thousand; five are worth it, however few a minute."""
    worker = Worker()
    earlier = reading(worker, at=START)
    worker.requests(int(number), "error")
    worker.requests(900)
    before = reading(worker, at=START + 540)
    worker.requests(100 - int(number))
    name = f'jaxmon_requests_total{{{WHERE},route="{ROUTE}",outcome="%s",start="warm"}}'
    return counted(
        {
            name % ("%s", "success"): counting(100 - number / 10),
            name % ("%s", "error"): counting(number / 10),
        },
        status(worker, before=before, earlier=earlier).answer.reasons,
    )


def leaving(number: float, *, took: float = 30.0) -> Scene:
    """So many callers in ten minutes who wait so long, beside thousand who need not."""
    worker, many = Worker(), int(number)
    earlier = reading(worker, at=START)
    worker.requests(many, "client_error", took=took)
    worker.requests(900)
    before = reading(worker, at=START + 540)
    worker.requests(100)
    labels = f'{WHERE},route="{ROUTE}",outcome="%s",start="warm"'
    name, metric = f"jaxmon_requests_total{{{labels}}}", "jaxmon_request_seconds"
    labels %= "%s", "client_error"
    found = {
        name % ("%s", "success"): counting(100),
        name % ("%s", "client_error"): counting(number / 10),
        f"{metric}_count{{{labels}}}": counting(number / 10),
        f"{metric}_sum{{{labels}}}": counting(number / 10 * took),
        f'{metric}_bucket{{{labels},le="10.0"}}': counting(number / 10 * (took <= 10)),
    }
    return counted(found, status(worker, before=before, earlier=earlier).answer.reasons)


def slower(times: float) -> Scene:
    """Binary fractions, whose sums are exact."""
    worker = Worker()
    worker.steps(1000, 0.125)
    before = reading(worker, at=START + 540)
    worker.steps(100, 0.125 * times)
    name = f'jaxmon_slowdown{{{WHERE},kind="loop",name="train",against="earlier"}}'
    found = status(worker, before=before).answer.reasons
    return Scene({name: constant(times)}, found)


def nonfinite(quantity: str, run: float) -> Scene:
    worker = trained()
    worker.set(catalog.VALUE_NONFINITE_RUN, run, quantity)
    return Scene(
        {
            f'jaxmon_value_nonfinite_run{{{WHERE},name="{quantity}"}}': constant(run),
            f'jaxmon_step_age_seconds{{{WHERE},loop="train"}}': constant(0.1),
        },
        reasons(worker),
    )


def outputs(number: float) -> Scene:
    worker = trained()
    worker.set(catalog.NONFINITE_OUTPUTS, number, "train.step")
    name = f'jaxmon_nonfinite_outputs{{{WHERE},name="train.step"}}'
    return Scene({name: constant(number)}, reasons(worker))


def silent(up: float) -> Scene:
    extra = [gauge(catalog.AGENT_UP, up, "1")]
    errors = 'collector="agents",reason="agent_timeout"'
    return Scene(
        {
            f"jaxmon_agent_up{{{WHERE}}}": constant(up),
            f'jaxmon_collector_errors_total{{instance="a",job="%s",{errors}}}': (
                counting(20 * (1 - up))
            ),
        },
        reasons(trained(), extra=extra),
    )


def accelerator(up: float, *, used: bool = True) -> Scene:
    """One that a program in a loop uses is a page, another one a ticket."""
    worker = trained()
    uuid = "GPU-%s"
    if used:
        worker.set(catalog.DEVICE_INFO, 1, "0", "gpu", "H100", "0", uuid, "")
    info = series(catalog.ACCELERATOR_INFO, uuid, "0", "nvidia", "H100", "", "")
    extra = [
        Family(catalog.ACCELERATOR_INFO, [(info, 1.0)]),
        gauge(catalog.ACCELERATOR_UP, up, uuid),
    ]
    host = 'instance="a",job="%s"'
    # Each job has a device of its own: they have one name everywhere.
    own = f'uuid="{uuid}"'
    found = {
        f"jaxmon_accelerator_up{{{host},{own}}}": constant(up),
        f'jaxmon_collector_success{{{host},collector="nvml"}}': constant(1),
        f'jaxmon_step_age_seconds{{{WHERE},loop="train"}}': constant(0.1),
    }
    if used:
        found[f'jaxmon_device_info{{{WHERE},device="0",{own}}}'] = constant(1)
    return Scene(found, reasons(worker, extra=extra))


def oom(errors: float) -> Scene:
    overview = {"functions": function(errors={"oom": int(errors)})}
    name = f'jaxmon_errors_total{{{WHERE},function="train.step",kind="oom"}}'
    return counted({name: counting(errors)}, reasons(trained(), overview=overview))


def leak(growth: float) -> Scene:
    leaks = [{"device": 0, "growth_bytes": growth, "seconds": 720}] if growth else []
    name = f'jaxmon_leak_growth_bytes{{{WHERE},device="0"}}'
    found = reasons(trained(), overview={"allocations": {"leaks": leaks}})
    return Scene({name: constant(growth)}, found)


def host_growth(grows: float) -> Scene:
    """Host memory: what holds it is named at once, the alert waits for two hours."""
    growth = {"growth_bytes": grows * 2**30, "seconds": 1200, "calls": 100}
    host = {**growth, "holder": {"name": "rows", "items": 100, "bytes": 2**30}}
    found = reasons(trained(), overview={"allocations": {"host": host}})
    series = {
        f"process_resident_memory_bytes{{{WHERE}}}": f"1000+{20 * grows:g}x240",
        f"jaxmon_uptime_seconds{{{WHERE}}}": "0+60x240",
        f"jaxmon_build_info{{{WHERE}}}": "1+0x240",
    }
    return Scene(series, found, at=14400)


def checks(key: str, what: str, failed: float) -> Scene:
    overview = {"functions": function(determinism={key: {"failed": int(failed)}})}
    labels = f'{WHERE},function="train.step",outcome="failed"'
    name = f"jaxmon_{what}_checks_total{{{labels}}}"
    return counted({name: counting(failed)}, reasons(trained(), overview=overview))


def no_progress(attempts: float) -> Scene:
    run = {"run": "r", "writer": "w", "starts": 9, "time": 1, "schema": 1}
    found = reasons(trained(), overview={"run": {**run, "fruitless": int(attempts)}})
    name = f'jaxmon_run_fruitless_attempts{{{WHERE},run="r"}}'
    return Scene({name: constant(attempts)}, found)


def recompile(number: float) -> Scene:
    """So many a minute, for two causes by turns."""
    causes = ("shape", "dtype")
    events = [
        {
            "kind": "recompile",
            "time": 970 - 60 * minute,
            "function": "train.step",
            "details": {"cause": causes[(minute + turn) % 2], "seconds": 0.1},
        }
        for minute in range(20)
        for turn in range(int(number))
    ]
    counts = {"recompiles": dict.fromkeys(causes, 30 * int(number)), "calls": 1000}
    overview = {"process": PROCESS, "functions": function(**counts)}
    name = f'jaxmon_recompiles_total{{{WHERE},function="train.step",cause="%s"}}'
    series = {name % ("%s", cause): counting(number / 2) for cause in causes}
    return counted(series, reasons(trained(), overview=overview, events=events))


def spent(state: str) -> Callable[[float], Scene]:
    """Return the scenes in which a loop spends a part of its time on *state*."""

    def scene(part: float) -> Scene:
        overview = {
            "process": PROCESS,
            "steps": {"train": {"running": 1, "steps": 100}},
            "time": ledger({state: part, "device": 1 - part}),
        }
        name = f'jaxmon_wall_seconds_total{{{WHERE},state="{state}"}}'
        return Scene(
            {
                name: counting(60 * part),
                f'jaxmon_step_age_seconds{{{WHERE},loop="train"}}': constant(0.1),
            },
            reasons(trained(), overview=overview),
        )

    return scene


def compiled_together(number: float) -> Scene:
    """So many of six processes compile a program at the same time."""
    compiled = function(
        compiles={"compiled": 1},
        phases={"backend_compile": {"seconds": 20, "count": 1}},
        program={"fingerprint": "f", "finished": 900},
    )
    idle = {"process": PROCESS, "functions": {}}
    every = [{**idle, "functions": compiled}] * int(number) + [idle] * (6 - int(number))
    found: dict[str, str] = {}
    for worker in range(6):
        labels = f'instance="a",worker="{worker}",job="%s"'
        of = f'{labels},function="train.step"'
        found |= {
            f"jaxmon_runtime_info{{{labels}}}": constant(1),
            f"jaxmon_processes{{{labels}}}": constant(1),
            f"jaxmon_counting_seconds{{{labels}}}": counting(60),
        }
        if worker < number:
            found |= {
                f'jaxmon_program_info{{{of},fingerprint="f"}}': constant(1),
                f'jaxmon_compiles_total{{{of},outcome="compiled"}}': "0x55 1x20",
                f'jaxmon_compile_seconds_sum{{{of},phase="backend_compile"}}': (
                    "0x55 20x20"
                ),
            }
    return Scene(found, reasons(trained(), overview=every[0], beside=every[1:]))


def export(minutes: float) -> Scene:
    """After half an hour, nothing arrives any more."""
    failing = {"failed_in_a_row": 9, "failing_seconds": 60 * minutes}
    name = f'jaxmon_otlp_exports_total{{{WHERE},signal="metrics",outcome="%s"}}'
    counts = {"success": "0+1x30 30x60", "failure": "0x30 1+1x60"}
    series = {name % ("%s", outcome): counts[outcome] for outcome in counts}
    found = reasons(trained(), overview={"exports": failing})
    return Scene(series, found, 60 * (30 + minutes))


def spans(number: float) -> Scene:
    """So many a minute."""
    worker = trained()
    earlier = reading(worker, at=START)
    worker.set(catalog.DROPPED, 10 * number, "span")
    name = f'jaxmon_dropped_total{{{WHERE},what="span"}}'
    found = status(worker, earlier=earlier).answer.reasons
    return Scene({name: counting(number)}, found)


# Of each: the symptom, and facts around its limits.
CASES: dict[Callable[[float], Scene], tuple[str, tuple[float, ...]]] = {
    memory: ("memory", (0.85, 0.9, 0.92)),
    compile_stuck: ("compile_stuck", (400, 900, 960)),
    stalled: ("stalled", (70, 660, 720, 780)),
    partial(stalled, step=300): ("stalled", (780, 960, 1080)),
    partial(stalled, beside=COMPILES): ("stalled", (840, 1080)),
    partial(stalled, beside=RUNS, label="evaluate"): EVALUATED,
    partial(stalled, beside=RUNS, label="publish"): ("stalled", (70, 780)),
    partial(stalled, beside=ENDED, label="evaluate", at=3000): EVALUATED,
    hanging: ("hanging", (70, 300, 360, 420)),
    partial(hanging, refused=3): ("hanging", (70, 300, 360, 420)),
    given_up: ("hanging", (4, 5, 6)),
    few_failing: ("requests", (0, 5, 6)),
    leaving: ("requests", (0, 5, 6)),
    partial(requests, 10_000, outcome="error"): ("requests", FAILED),
    partial(requests, 1000, start="cold"): ("cold_requests", (0.04, 0.05, 0.06)),
    partial(requests, 10, start="cold"): ("cold_requests", (0.0, 0.1, 0.2)),
    slower: ("slower", (1.375, 1.5, 1.625)),
    partial(nonfinite, "loss"): ("nonfinite_value", (1, 2, 3)),
    partial(nonfinite, "grad_norm"): ("nonfinite_value", (9, 10, 11)),
    outputs: ("nonfinite", (0, 1)),
    checkpoint: ("checkpoint", (0, 1)),
    crashed: ("crashed", (0, 1)),
    silent: ("silent", (0, 1)),
    accelerator: ("accelerator", (0, 1)),
    partial(accelerator, used=False): ("accelerator", (0, 1)),
    oom: ("oom", (0, 1)),
    leak: ("leak", (0, 2**20)),
    host_growth: ("host_memory_growth", (0, 1)),
    partial(checks, "checks", "determinism"): ("determinism", (0, 1)),
    partial(checks, "gradient_checks", "gradient"): ("gradients", (0, 1)),
    no_progress: ("no_progress", (2, 3, 4)),
    recompile: ("recompile", (1, 2, 3)),
    spent("data_wait"): ("data_wait", (0.25, 0.3, 0.35)),
    spent("eager"): ("eager", (0.45, 0.5, 0.55)),
    spent("blocked"): ("blocked", (0.45, 0.5, 0.55)),
    spent("gc"): ("garbage", (0.45, 0.5, 0.55)),
    spent("gil"): ("interpreter", (0.45, 0.5, 0.55)),
    late_compiles: ("after_ready", (0, 1)),
    compiled_together: ("compiled_together", (3, 4, 5)),
    export: ("export", (10, 30)),
    spans: ("spans", (9, 10, 11)),
}


ALERTS = {name: SYMPTOMS[name].alert for name, _ in CASES.values()}
RULES = (ROOT / "alerts" / "alerts.yaml").read_text()
INTERVALS = ("1m", "30s")


@cache
def intervals() -> dict[str, str]:
    """Return how often each alert is evaluated, with all that promtool does."""
    alerts = set(ALERTS.values())
    return {alert: interval(needed((alert,), shipped())) for alert in alerts}


@pytest.mark.parametrize("every", INTERVALS)
def test_page_and_alerts_agree(every: str, tmp_path: Path) -> None:
    """Both say of each value the same; and not of all, so neither is mute."""
    # What looks back for hours would have all the others evaluated for as long.
    series: dict[bool, dict[str, str]] = {False: {}, True: {}}
    tests: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
    alerts: dict[bool, set[str]] = {False: set(), True: set()}
    for number, (facts, (name, values)) in enumerate(CASES.items()):
        if intervals()[ALERTS[name]] != every:
            continue
        states = set()
        for value in values:
            scene, job = facts(value), f"{name}-{number}-{value}"
            late = scene.at > 2 * 3600
            series[late] |= {
                one.replace("%s", job): samples for one, samples in scene.series.items()
            }
            due = [
                one.state
                for one in scene.reasons
                if one.kind == name and " follows at " not in one.text
            ]
            states.add(tuple(due))
            tests[late].append(expected(name, job, due, scene.at))
            alerts[late].add(ALERTS[name])
        assert len(states) > 1, name
    for late, asked in tests.items():
        if asked:
            groups = needed(alerts[late], shipped())
            evaluate(tmp_path, groups, series[late], promql_expr_test=asked)


def expected(name: str, job: str, due: Sequence[str], at: float) -> dict[str, Any]:
    """Return the test that the alert of a symptom fires as the states *due* say."""
    severities = {"failing": "page", "degraded": "ticket"}
    own = f'ALERTS{{alertname="{ALERTS[name]}",alertstate="firing",job="{job}"'
    # Not for another of its conditions.
    if f"symptom: {name}\n" in RULES:
        own += f',symptom="{name}"'
    # Alertmanager sends no ticket beside a page of the same alert.
    page, ticket = (f'{own},severity="{one}"}}' for one in ("page", "ticket"))
    return {
        "expr": f"max by (job, severity) ({page} or {ticket} unless on () {page})",
        "eval_time": f"{at:.0f}s",
        "exp_samples": [
            {"labels": f'{{job="{job}",severity="{severities[one]}"}}', "value": 1}
            for one in due
        ],
    }


def test_callers_who_leave_at_once_are_no_failures() -> None:
    """Neither on a screen nor for the alert."""
    assert leaving(100, took=9.0).reasons == ()


def test_all_that_has_both_is_compared() -> None:
    """Whatever a screen says, and an alert as well."""

    def has_both(one: Symptom) -> bool:
        return bool(one.alert and (one.finding or one.together or one.reason))

    assert {one.name for one in SYMPTOMS.values() if has_both(one)} == set(ALERTS)
    assert set(intervals().values()) == set(INTERVALS)
