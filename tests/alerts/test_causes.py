"""
Each cause alert stays silent, fires with exactly its labels, and resolves.

Series have one sample a minute: ``a+bxn`` stands for a, a+b, … (n+1 samples), ``_xn``
for none.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from jaxmon.artifacts import alerts, slo
from tests.alerts.promtool import Case, Firing, run


STORM = (
    'jaxmon_recompiles_total{job="train",instance="a:1",worker="0",function="step",'
    'cause="shape"}'
)
COLD = 'jaxmon_requests_total{job="web",route="/gen",outcome="success",start="cold"}'
WARM = 'jaxmon_requests_total{job="web",route="/gen",outcome="success",start="warm"}'
OOM = 'jaxmon_errors_total{job="train",function="step",kind="oom"}'
MEMORY = (
    'jaxmon_device_memory_bytes{{job="web",instance="a:1",worker="1",device="0",'
    'kind="{}"}}'
)
LEAK = 'jaxmon_leak_growth_bytes{job="train",instance="a:1",worker="0",device="0"}'
RSS = 'process_resident_memory_bytes{job="web",instance="a:1",worker="1"}'
STARTED = 'process_start_time_seconds{job="web",instance="a:1",worker="1"}'
RUNTIME = 'jaxmon_runtime_info{job="web",instance="a:1",worker="1",jax="0.10.2"}'
LAST_STEP = 'jaxmon_last_step_timestamp_seconds{job="train",instance="a:1",loop="main"}'
OLDEST = 'jaxmon_compile_oldest_seconds{job="train",instance="a:1"}'
GPU = 'jaxmon_accelerator_up{job="gpus",instance="a:1",uuid="GPU-1"}'
XID = 'jaxmon_gpu_xid_errors_total{{job="gpus",instance="a:1",uuid="GPU-1",xid="{}"}}'
ECC = (
    'jaxmon_gpu_ecc_errors_total{{job="gpus",instance="a:1",uuid="GPU-1",'
    'severity="{}",scope="{}"}}'
)
REMAP = 'jaxmon_gpu_row_remap_failure{job="gpus",instance="a:1",uuid="GPU-1"}'
THROTTLE = (
    'jaxmon_gpu_throttle_seconds_total{{job="gpus",instance="a:1",uuid="GPU-1",'
    'reason="{}"}}'
)
TPU = 'jaxmon_tpu_runtime_up{{job="pods",instance="a:1",runtime="{}"}}'
ON_TPU = 'jaxmon_runtime_info{job="pods",instance="a:1",worker="0",platform="tpu"}'
UP = 'up{job="web",instance="a:1"}'
BUILD = 'jaxmon_build_info{job="web",instance="a:1",version="1"}'
REQUESTS = 'jaxmon_requests_in_progress{job="web",instance="a:1",route="/gen"}'
COLLECTOR = 'jaxmon_collector_success{{job="gpus",instance="a:1",collector="{}"}}'
HOOK = 'jaxmon_hook_active{job="train",instance="a:1",hook="compiles"}'


def ticket(description, **labels):
    """
    Return a firing ticket.
    """
    return [Firing({"severity": "ticket", **labels}, description)]


def page(description, **labels):
    """
    Return a firing page.
    """
    return [Firing({"severity": "page", **labels}, description)]


ECC_TICKET = ticket(
    "GPU GPU-1 of a:1 had memory errors that could not be corrected within 10m, or a "
    "bad row of its memory could not be replaced.",
    job="gpus",
    instance="a:1",
    uuid="GPU-1",
)

CASES = {
    "recompile storm": Case(
        "JaxmonRecompileStorm",
        {STORM: "0+0x10 5+5x9 50+0x30"},
        quiet=("10m", "14m", "27m"),
        firing={
            "15m": ticket(
                "Function step of job train was recompiled 25 times within 10m.",
                job="train",
                function="step",
                deploy="expected",
            )
        },
    ),
    "cold starts": Case(
        "JaxmonColdStarts",
        {COLD: "0+0x10 2+2x19 40+0x30", WARM: "0+8x60"},
        quiet=("10m", "15m", "36m"),
        firing={
            "16m": ticket(
                "13.04% of the requests for route /gen of job web waited for a compile "
                "within 10m.",
                job="web",
                route="/gen",
                deploy="expected",
            )
        },
    ),
    "few of few requests are cold": Case(
        "JaxmonColdStarts",
        {COLD: "0+0x10 1+0x30", WARM: "0+0x10 1+0x30"},
        quiet=("12m", "20m"),
    ),
    "a small share of many requests is cold": Case(
        "JaxmonColdStarts",
        {COLD: "0+2x40", WARM: "0+98x40"},
        quiet=("12m", "30m"),
    ),
    "out of memory": Case(
        "JaxmonOutOfMemory",
        {OOM: "0+0x10 2+0x30"},
        quiet=("10m", "21m"),
        firing={
            "11m": ticket(
                "Function step of job train ran out of device memory 2 times within "
                "10m.",
                job="train",
                function="step",
            )
        },
    ),
    "out of memory at the first sight of a function": Case(
        "JaxmonOutOfMemory",
        {OOM: "_x10 1+0x30"},
        quiet=("9m", "20m", "40m"),
        firing={
            "12m": ticket(
                "Function step of job train ran out of device memory 1 times within "
                "10m.",
                job="train",
                function="step",
            )
        },
    ),
    "other errors are no lack of memory": Case(
        "JaxmonOutOfMemory",
        {OOM.replace("oom", "nan"): "0+1x30"},
        quiet=("20m",),
    ),
    "device memory high": Case(
        "JaxmonDeviceMemoryHigh",
        {
            MEMORY.format("in_use"): "50+0x4 95+0x20 50+0x10",
            MEMORY.format("limit"): "100+0x40",
        },
        quiet=("4m", "14m", "26m"),
        firing={
            "15m": ticket(
                "95% of what job web may allocate on device 0 of a:1 (worker 1) is in "
                "use.",
                job="web",
                instance="a:1",
                worker="1",
                device="0",
            )
        },
    ),
    "a device without a limit": Case(
        "JaxmonDeviceMemoryHigh",
        {
            MEMORY.format("in_use"): "50+0x40",
            MEMORY.format("limit"): "0+0x40",
        },
        quiet=("30m",),
    ),
    "memory leak": Case(
        "JaxmonMemoryLeak",
        {LEAK: "0+0x10 4194304+1048576x40 0+0x20"},
        quiet=("10m", "30m", "52m"),
        firing={
            "31m": ticket(
                "A process of job train on a:1 (worker 0) keeps more and more on "
                "device 0: 24MiB more within the agent's last window.",
                job="train",
                instance="a:1",
                worker="0",
                device="0",
            )
        },
    ),
    "a cache that fills for a while": Case(
        "JaxmonMemoryLeak",
        {LEAK: "0+0x10 4194304+1048576x18 0+0x40"},
        quiet=tuple(f"{minute}m" for minute in range(5, 60, 5)),
    ),
    "host memory growth": Case(
        "JaxmonHostMemoryGrowth",
        {RSS: "1000+0x120 1003+3x199 1600+0x200", STARTED: "0+0x600"},
        quiet=("120m", "180m", "420m"),
        firing={
            "300m": ticket(
                "A process of job web on a:1 (worker 1) grew by 12.41% within 1h, and "
                "the 1h before.",
                job="web",
                instance="a:1",
                worker="1",
            )
        },
    ),
    "a program that loads its model, then more": Case(
        "JaxmonHostMemoryGrowth",
        {RSS: "100+30x30 1000+0x169 1500+0x300", STARTED: "0+0x600"},
        quiet=tuple(f"{minute}m" for minute in range(10, 300, 3)),
    ),
    "training stalled": Case(
        "JaxmonTrainingStalled",
        {LAST_STEP: "0+60x10 600+0x29 2460+60x10"},
        quiet=("10m", "20m", "41m"),
        firing={
            "21m": page(
                "A process of job train finished its last step of loop main 11m 0s "
                "ago.",
                job="train",
                loop="main",
                slo="step-freshness",
            )
        },
    ),
    "a first step that compiles is not stalled, until it is stuck": Case(
        "JaxmonTrainingStalled",
        {LAST_STEP: "0+0x30", OLDEST: "0+60x30"},
        quiet=("11m", "14m"),
        firing={
            "15m": page(
                "A process of job train finished its last step of loop main 15m 0s "
                "ago.",
                job="train",
                loop="main",
                slo="step-freshness",
            )
        },
    ),
    "a loop that ended is not stalled": Case(
        "JaxmonTrainingStalled",
        {LAST_STEP: "0+60x10 stale _x60"},
        quiet=("15m", "21m", "60m"),
    ),
    "compile stuck": Case(
        "JaxmonCompileStuck",
        {OLDEST: "0+60x20 0+0x10"},
        quiet=("15m", "21m"),
        firing={
            "16m": ticket(
                "A process of job train on a:1 has been compiling one program for "
                "16m 0s.",
                job="train",
                instance="a:1",
            )
        },
    ),
    "gpu lost": Case(
        "JaxmonGpuLost",
        {GPU: "1+0x5 0+0x10 1+0x10"},
        quiet=("5m", "6m", "17m"),
        firing={
            "7m": page(
                "GPU GPU-1 of a:1 is lost; what runs on it fails or hangs.",
                job="gpus",
                instance="a:1",
                uuid="GPU-1",
            )
        },
    ),
    "critical Xid": Case(
        "JaxmonGpuXid",
        {XID.format(79): "0+0x5 1+0x40", XID.format(13): "0+1x40"},
        quiet=("5m", "17m"),
        firing={
            "6m": ticket(
                "GPU GPU-1 of a:1 reported Xid 79 1 times within 10m.",
                job="gpus",
                instance="a:1",
                uuid="GPU-1",
                xid="79",
            )
        },
    ),
    "critical Xid whose series it starts": Case(
        "JaxmonGpuXid",
        {XID.format(79): "_x20 1+0x40"},
        quiet=("18m", "40m"),
        firing={
            "21m": ticket(
                "GPU GPU-1 of a:1 reported Xid 79 1 times within 10m.",
                job="gpus",
                instance="a:1",
                uuid="GPU-1",
                xid="79",
            )
        },
    ),
    "uncorrected memory error": Case(
        "JaxmonGpuEccErrors",
        {
            ECC.format("uncorrected", "volatile"): "7+0x10 8+0x40",
            ECC.format("uncorrected", "aggregate"): "70+0x10 71+0x40",
            REMAP: "0+0x50",
        },
        quiet=("10m", "22m"),
        firing={"12m": ECC_TICKET},
    ),
    "row that cannot be replaced": Case(
        "JaxmonGpuEccErrors",
        {REMAP: "0+0x10 1+0x40", ECC.format("uncorrected", "volatile"): "0+0x50"},
        quiet=("10m",),
        firing={"11m": ECC_TICKET, "50m": ECC_TICKET},
    ),
    "memory errors of the past, or corrected": Case(
        "JaxmonGpuEccErrors",
        {
            ECC.format("uncorrected", "volatile"): "_x10 3+0x40",
            ECC.format("corrected", "volatile"): "0+5x50",
            ECC.format("uncorrected", "aggregate"): "0+1x50",
            REMAP: "0+0x50",
        },
        quiet=("5m", "11m", "30m", "50m"),
        firing={},
    ),
    "held down by heat": Case(
        "JaxmonGpuThrottled",
        {
            THROTTLE.format("hw_thermal"): "0+0x20 12+12x20 240+0x40",
            THROTTLE.format("sw_thermal"): "0+0x80",
        },
        quiet=("20m", "70m"),
        firing={
            "40m": ticket(
                "The clock of GPU GPU-1 of a:1 was held down for 20% of the last 15m, "
                "by more than its power limit.",
                job="gpus",
                instance="a:1",
                uuid="GPU-1",
            )
        },
    ),
    "held down by its power limit, or idle": Case(
        "JaxmonGpuThrottled",
        {
            THROTTLE.format("power"): "0+60x60",
            THROTTLE.format("low_utilization"): "0+60x60",
            THROTTLE.format("hw_thermal"): "0+3x60",
        },
        quiet=("20m", "40m", "60m"),
        firing={},
    ),
    "a program on TPUs without a runtime": Case(
        "JaxmonTpuRuntimeDown",
        {TPU.format(8431): "1+0x5 0+0x20 1+0x10", ON_TPU: "1+0x40"},
        quiet=("5m", "15m", "27m"),
        firing={
            "17m": ticket(
                "A program of job pods on a:1 uses TPUs, and no runtime answers there; "
                "what the chips do cannot be seen.",
                job="pods",
                instance="a:1",
            )
        },
    ),
    "idle TPUs, and one runtime of several": Case(
        "JaxmonTpuRuntimeDown",
        {
            TPU.format(8431): "0+0x60",
            TPU.format(8432): "0+0x20 1+0x40",
            ON_TPU: "_x25 1+0x35",
            ON_TPU.replace("tpu", "gpu"): "1+0x60",
        },
        quiet=("15m", "30m", "60m"),
        firing={},
    ),
    "target down": Case(
        "JaxmonTargetDown",
        {
            UP: "1+0x5 0+0x15 1+0x10",
            BUILD: "1+0x5 stale _x16 1+0x10",
            'up{job="other",instance="b:1"}': "0+0x40",
        },
        quiet=("5m", "10m", "22m"),
        firing={
            "11m": ticket(
                "Target a:1 of job web does not answer; nothing about it can be seen "
                "or alerted on.",
                job="web",
                instance="a:1",
            )
        },
    ),
    "service vanished": Case(
        "JaxmonServiceVanished",
        {REQUESTS: "3+0x10 stale _x90"},
        quiet=("10m", "15m", "80m"),
        firing={
            "16m": page(
                "Job web served requests within the last hour, and now none of its "
                "processes can be seen. Alerts on its objectives have ended with it.",
                job="web",
            )
        },
    ),
    "one process of two vanished": Case(
        "JaxmonServiceVanished",
        {
            REQUESTS: "3+0x10 stale _x90",
            REQUESTS.replace("a:1", "b:1"): "0+0x100",
        },
        quiet=("15m", "30m"),
    ),
    "collector down": Case(
        "JaxmonCollectorDown",
        {
            COLLECTOR.format("host"): "1+0x5 0+0x20 1+0x10",
            COLLECTOR.format("nvml"): "0+0x40",
        },
        quiet=("5m", "15m", "27m"),
        firing={
            "16m": ticket(
                "Collector host of a:1 worked within the last day and fails now; its "
                "figures are missing.",
                job="gpus",
                instance="a:1",
                collector="host",
            )
        },
    ),
    "agent hook inactive": Case(
        "JaxmonAgentHookInactive",
        {HOOK: "1+0x5 0+0x20 1+0x10", HOOK.replace("a:1", "b:1"): "1+0x40"},
        quiet=("5m", "15m", "27m"),
        firing={
            "16m": ticket(
                "Hook compiles is inactive in a process of job train; the metrics that "
                "it feeds are incomplete.",
                job="train",
                hook="compiles",
            )
        },
    ),
    "deploy in progress": Case(
        "JaxmonDeployInProgress",
        # Starts at 0, and again after 20 minutes.
        {STARTED: "0+0x19 1200+0x40", RUNTIME: "1+0x60"},
        quiet=("10m", "19m", "30m"),
        firing={
            "22m": [
                Firing(
                    {"severity": "info", "job": "web"},
                    "The youngest process of job web started 2m 0s ago. Tickets about "
                    "compiles wait until it has run for 10m.",
                )
            ]
        },
    ),
    "a sidecar that starts is no deployment": Case(
        "JaxmonDeployInProgress",
        {STARTED: "0+0x30"},
        quiet=("1m", "5m"),
    ),
    "a crash loop is no deployment": Case(
        "JaxmonDeployInProgress",
        {STARTED: "0+120x60", RUNTIME: "1+0x60"},
        quiet=("10m", "50m"),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_alert(case, tmp_path):
    """
    The alert fires when it should, with exactly these labels, and only then.
    """
    run(case, tmp_path)


def test_every_cause_has_a_case():
    """
    No alert but those on budgets, which have tests of their own, goes without.
    """
    burning = {one.alert for one in slo.load()}
    causes = {one.name for one in alerts.all_alerts()} - burning
    fired = {case.alert for case in CASES.values() if case.firing}

    assert causes == fired


def test_a_wrong_expectation_is_noticed(tmp_path):
    """
    The comparison with promtool can fail: on labels, descriptions, and silence.
    """
    case = CASES["gpu lost"]
    [firing] = case.firing["7m"]
    wrong = (
        replace(case, firing={"7m": [replace(firing, description="GPU lost.")]}),
        replace(case, firing={"7m": [replace(firing, labels={"job": "gpus"})]}),
        replace(case, quiet=("7m",)),
    )
    for one in wrong:
        with pytest.raises(AssertionError, match="FAILED"):
            run(one, tmp_path)
