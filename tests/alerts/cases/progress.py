"""Cases of alerts on the program as a whole."""

from __future__ import annotations

from tests.alerts.promtool import Case, Firing, page, ticket


STARTED = 'process_start_time_seconds{job="web",instance="a:1",worker="1"}'
RUNTIME = 'jaxmon_runtime_info{job="web",instance="a:1",worker="1",jax="0.10.2"}'
LAST_STEP = 'jaxmon_last_step_timestamp_seconds{job="train",instance="a:1",loop="main"}'
OLDEST = 'jaxmon_compile_oldest_seconds{job="train",instance="a:1"}'
WAITING = 'jaxmon_wall_seconds_total{job="train",instance="a:1",state="data_wait"}'
COMPUTING = 'jaxmon_wall_seconds_total{job="train",instance="a:1",state="device"}'
OUTPUTS = 'jaxmon_nonfinite_outputs{job="train",instance="a:1",name="train.step"}'
RUN = 'jaxmon_value_nonfinite_run{job="train",instance="a:1",name="loss"}'

SLOWDOWN = 'jaxmon_slowdown{job="train",instance="a:1",worker="0",kind="%s",name="%s",'

CASES = {
    "a function is slower than in an earlier run": Case(
        "JaxmonSlowdown",
        {
            SLOWDOWN % ("function", "f") + 'against="past_run"}': "1+0x10 2.4+0x40",
            SLOWDOWN % ("function", "f") + 'against="earlier"}': "1+0x60",
            SLOWDOWN % ("function", "g") + 'against="earlier"}': "1.4+0x60",
        },
        quiet=("10m", "20m", "25m"),
        firing={
            "27m": ticket(
                "Function f of job train takes 2.4 times as long as in an earlier run.",
                job="train",
                kind="function",
                name="f",
                against="past_run",
            )
        },
    ),
    "steps are slower than before, for a while": Case(
        "JaxmonSlowdown",
        {SLOWDOWN % ("loop", "main") + 'against="earlier"}': "1+0x5 3+0x20 1+0x20"},
        quiet=("10m", "20m", "27m"),
        firing={
            "22m": ticket(
                "Loop main of job train takes 3 times as long as earlier in its run.",
                job="train",
                kind="loop",
                name="main",
                against="earlier",
            )
        },
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
    "training that waits for data": Case(
        "JaxmonTimeLost",
        {WAITING: "0+42x60", COMPUTING: "0+18x60", LAST_STEP: "0+60x60"},
        quiet=(),
        firing={
            "60m": ticket(
                "A process of job train spent 70% of the last 30m on data_wait.",
                job="train",
                state="data_wait",
            )
        },
    ),
    "training that computes, and waits a little": Case(
        "JaxmonTimeLost",
        {WAITING: "0+18x60", COMPUTING: "0+42x60", LAST_STEP: "0+60x60"},
        quiet=("60m",),
    ),
    "a server that waits has no steps": Case(
        "JaxmonTimeLost",
        {WAITING: "0+58x60"},
        quiet=("60m",),
    ),
    "an output that stays NaN": Case(
        "JaxmonNonFinite",
        {OUTPUTS: "0+0x5 2+0x20 0+0x10"},
        quiet=("5m", "7m", "30m"),
        firing={
            "8m": ticket(
                "train.step of job train was finite, and is NaN or infinite since.",
                job="train",
                name="train.step",
            )
        },
    ),
    "a logged value that stays NaN, but for a few": Case(
        "JaxmonNonFinite",
        {RUN: "0+0x5 8+0x5 11+20x20"},
        quiet=("10m", "13m"),
        firing={
            "15m": ticket(
                "loss of job train was finite, and is NaN or infinite since.",
                job="train",
                name="loss",
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
                    "The latest process of job web started 2m 0s ago. Compile "
                    "tickets are held back until it has run for 10m.",
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
