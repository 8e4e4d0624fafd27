"""
The live page and the alerts, on the same facts: at, below and above each limit.

What pages is failing, what is a ticket is degraded, and what is neither is neither,
unless the page says that one follows. What grows is compared when it is due, and an
evaluation later; what stays after an hour, when no alert waits any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from jaxmon import catalog
from jaxmon.exposition.families import Family, gauge, series
from jaxmon.facts.process import read
from jaxmon.facts.status import HostVerdict, ProcessVerdict, Reason
from jaxmon.symptoms.findings import as_fact, find
from jaxmon.symptoms.symptom import Symptom
from jaxmon.symptoms.table import SYMPTOMS
from tests.alerts.promtool import evaluate, needed, shipped
from tests.helpers.findings import function
from tests.helpers.sidecars import ROUTE, START, Worker, reading, status


WHERE = 'instance="a",worker="0",job="%s"'
LIMIT = 80 * 2**30


class Scene(NamedTuple):
    """
    The same facts for both.

    Attributes:
        series: their values, with ``%s`` for the job.
        reasons: what is wrong, as the page has it.
        at: when they are compared, in seconds.
    """

    series: dict[str, str]
    reasons: tuple[Reason, ...]
    at: float = 3600


def constant(value: float) -> str:
    return f"{value:.15g}+0x70"


def counting(rate: float) -> str:
    """Return a counter that rises by *rate* a minute."""
    return f"0+{rate:.15g}x70"


def reasons(
    *workers: Worker, extra: Iterable[Family] = (), findings: Any = None
) -> tuple[Reason, ...]:
    """Return what the page says of *workers*, and of an overview's *findings*."""
    verdict = HostVerdict()
    if findings is not None:
        found = tuple(map(as_fact, find(read(findings))))
        verdict = HostVerdict({"0": ProcessVerdict(findings=found)})
    return status(*workers, extra=extra, verdict=verdict).answer.reasons


def trained() -> Worker:
    worker = Worker()
    worker.steps(100, 0.1)
    return worker


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


def stalled(age: float) -> Scene:
    worker = trained()
    worker.set(catalog.STEP_AGE_SECONDS, age, "train")
    name = f'jaxmon_step_age_seconds{{{WHERE},loop="train"}}'
    return Scene({name: "0+60x70"}, reasons(worker), age)


def hanging(age: float) -> Scene:
    worker = Worker()
    worker.set(catalog.REQUESTS_IN_PROGRESS, 3, ROUTE)
    worker.set(catalog.REQUEST_OLDEST_SECONDS, age, ROUTE)
    name = f'jaxmon_request_oldest_seconds{{{WHERE},route="{ROUTE}"}}'
    return Scene({name: "0+60x70"}, reasons(worker), age)


def requests(
    some: int, every: int, *, outcome: str = "success", start: str = "warm"
) -> Scene:
    """So many requests a minute, *some* of them with that outcome and start."""
    worker = Worker()
    worker.requests(9 * (every - some))
    worker.requests(9 * some, outcome, start)
    before = reading(worker, at=START + 540)
    worker.requests(every - some)
    worker.requests(some, outcome, start)
    name = f'jaxmon_requests_total{{{WHERE},route="{ROUTE}",outcome="%s",start="%s"}}'
    return Scene(
        {
            name % ("%s", "success", "warm"): counting(every - some),
            name % ("%s", outcome, start): counting(some),
            f"jaxmon_counting_seconds{{{WHERE}}}": counting(60),
        },
        status(worker, before=before).answer.reasons,
    )


def failing(part: float) -> Scene:
    return requests(round(part * 10_000), 10_000, outcome="error")


def cold(part: float) -> Scene:
    return requests(round(part * 1000), 1000, start="cold")


def few_cold(number: float) -> Scene:
    """Ten of them in ten minutes are the limit."""
    return requests(int(number), 10, start="cold")


def slower(times: float) -> Scene:
    """Binary fractions, whose sums are exact."""
    worker = Worker()
    worker.steps(1000, 0.125)
    before = reading(worker, at=START + 540)
    worker.steps(100, 0.125 * times)
    name = f'jaxmon_slowdown{{{WHERE},kind="loop",name="train",against="earlier"}}'
    found = status(worker, before=before).answer.reasons
    return Scene({name: constant(times)}, found)


def loss(run: float) -> Scene:
    return nonfinite("loss", run)


def norm(run: float) -> Scene:
    return nonfinite("grad_norm", run)


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


def checkpoint(failed: float) -> Scene:
    worker = trained()
    before = reading(worker, at=START + 540)
    worker.set(catalog.CHECKPOINT_FAILURES, failed, "save")
    name = f'jaxmon_checkpoint_failures_total{{{WHERE},operation="save"}}'
    return Scene(
        {name: counting(failed), f"jaxmon_counting_seconds{{{WHERE}}}": counting(60)},
        status(worker, before=before).answer.reasons,
    )


def crashed(died: float) -> Scene:
    extra = [gauge(catalog.AGENT_DIED, died, "1", "train")]
    name = f'jaxmon_agent_died{{{WHERE},loop="train"}}'
    return Scene({name: f"0+0x10 {died}+0x60"}, reasons(trained(), extra=extra))


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
    """One that a program uses is a page, another one a ticket."""
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
    }
    if used:
        found[f'jaxmon_device_info{{{WHERE},device="0",{own}}}'] = constant(1)
    return Scene(found, reasons(worker, extra=extra))


def unused_accelerator(up: float) -> Scene:
    return accelerator(up, used=False)


def oom(errors: float) -> Scene:
    overview = {"functions": function(errors={"oom": int(errors)})}
    name = f'jaxmon_errors_total{{{WHERE},function="train.step",kind="oom"}}'
    counted = f"jaxmon_counting_seconds{{{WHERE}}}"
    found = reasons(trained(), findings=overview)
    return Scene({name: counting(errors), counted: counting(60)}, found)


def leak(growth: float) -> Scene:
    leaks = [{"device": 0, "growth_bytes": growth, "seconds": 720}] if growth else []
    name = f'jaxmon_leak_growth_bytes{{{WHERE},device="0"}}'
    found = reasons(trained(), findings={"allocations": {"leaks": leaks}})
    return Scene({name: constant(growth)}, found)


def checks(failed: float, what: str, metric: str) -> Scene:
    overview = {"functions": function(determinism={what: {"failed": int(failed)}})}
    name = f'{metric}{{{WHERE},function="train.step",outcome="failed"}}'
    counted = f"jaxmon_counting_seconds{{{WHERE}}}"
    found = reasons(trained(), findings=overview)
    return Scene({name: counting(failed), counted: counting(60)}, found)


def determinism(failed: float) -> Scene:
    return checks(failed, "checks", "jaxmon_determinism_checks_total")


def gradients(failed: float) -> Scene:
    return checks(failed, "gradient_checks", "jaxmon_gradient_checks_total")


# Of each: the symptom, and facts around its limits.
CASES: dict[Callable[[float], Scene], tuple[str, tuple[float, ...]]] = {
    memory: ("memory", (0.85, 0.9, 0.92)),
    compile_stuck: ("compile_stuck", (400, 900, 960)),
    stalled: ("stalled", (70, 660, 720, 780)),
    hanging: ("hanging", (70, 300, 360, 420)),
    failing: ("requests", (0.0, 0.0009, 0.001, 0.002, 0.003, 0.0032)),
    cold: ("cold_requests", (0.04, 0.05, 0.06)),
    few_cold: ("cold_requests", (0, 1, 2)),
    slower: ("slower", (1.375, 1.5, 1.625)),
    loss: ("nonfinite_value", (1, 2, 3)),
    norm: ("nonfinite_value", (9, 10, 11)),
    outputs: ("nonfinite", (0, 1)),
    checkpoint: ("checkpoint", (0, 1)),
    crashed: ("crashed", (0, 1)),
    silent: ("silent", (0, 1)),
    accelerator: ("accelerator", (0, 1)),
    unused_accelerator: ("accelerator", (0, 1)),
    oom: ("oom", (0, 1)),
    leak: ("leak", (0, 2**20)),
    determinism: ("determinism", (0, 1)),
    gradients: ("gradients", (0, 1)),
}


@pytest.mark.parametrize("facts", CASES, ids=lambda one: one.__name__)
def test_page_and_alert_agree(facts: Callable[[float], Scene], tmp_path: Path) -> None:
    """Both say of each value the same; and not of all, so neither is mute."""
    name, values = CASES[facts]
    alert = SYMPTOMS[name].alert
    found: dict[str, str] = {}
    tests = []
    states = set()
    for number, value in enumerate(values):
        scene, job = facts(value), f"job{number}"
        found |= {
            one.replace("%s", job): samples for one, samples in scene.series.items()
        }
        due = [
            one.state
            for one in scene.reasons
            if one.kind == name and " follows at " not in one.text
        ]
        states.add(tuple(due))
        severities = {"failing": "page", "degraded": "ticket"}
        own = f'ALERTS{{alertname="{alert}",alertstate="firing",job="{job}"'
        # Alertmanager sends no ticket beside a page of the same alert.
        page, ticket = (f'{own},severity="{one}"}}' for one in ("page", "ticket"))
        tests.append(
            {
                "expr": f"max by (job, severity) ({page} or {ticket} unless on () "
                f"{page})",
                "eval_time": f"{scene.at:.0f}s",
                "exp_samples": [
                    {
                        "labels": f'{{job="{job}",severity="{severities[one]}"}}',
                        "value": 1,
                    }
                    for one in due
                ],
            }
        )
    assert len(states) > 1
    evaluate(tmp_path, needed(alert, shipped()), found, promql_expr_test=tests)


def test_all_that_has_both_is_compared() -> None:
    """What the answer of screens says, and an alert as well."""

    def has_both(one: Symptom) -> bool:
        return bool(one.alert and (one.reason or one.severity))

    assert {one.name for one in SYMPTOMS.values() if has_both(one)} == {
        name for name, _ in CASES.values()
    }
