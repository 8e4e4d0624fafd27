"""Cases of alerts on the program as a whole."""

from tests.alerts.promtool import Case, page, ticket


AGE = 'jaxmon_step_age_seconds{job="train",instance="a:1",loop="main"}'
STEPS = 'jaxmon_step_seconds_{}{{job="train",instance="a:1",loop="main"}}'
ENDED = 'jaxmon_activity_age_seconds{job="train",instance="a:1",activity="evaluation"}'
EVALUATION = (
    'jaxmon_activity_running_seconds{job="train",instance="a:1",activity="evaluation"}'
)
SAVED = 'jaxmon_activity_age_seconds{job="train",instance="a:1",activity="checkpoint"}'
UNSAVED = (
    'jaxmon_checkpoint_failures_total{job="train",instance="a:1",operation="save"}'
)
UPTIME = 'jaxmon_uptime_seconds{job="train",instance="a:1"}'
OLDEST = 'jaxmon_compile_oldest_seconds{job="train",instance="a:1"}'
WAITING = 'jaxmon_wall_seconds_total{job="train",instance="a:1",state="data_wait"}'
COMPUTING = 'jaxmon_wall_seconds_total{job="train",instance="a:1",state="device"}'
OUTPUTS = 'jaxmon_nonfinite_outputs{job="train",instance="a:1",name="train.step"}'
RUN = 'jaxmon_value_nonfinite_run{job="train",instance="a:1",name="loss"}'

SLOWDOWN = 'jaxmon_slowdown{job="train",instance="a:1",worker="0",kind="%s",name="%s",'

STUCK = 'jaxmon_call_age_seconds{{job="train",instance="{}",worker="0",state="{}"}}'

NCCL = 'jaxmon_nccl_{}{{job="train",instance="{}:1"{}}}'
NCCL_LAGS = tuple(NCCL.format("lagging_ranks", one, "") for one in "ab")
NCCL_DEAD, NCCL_THERE = (
    NCCL.format("processes", "a", f',state="{state}"')
    for state in ("dead", "responding")
)

RUN_SECONDS = (
    'jaxmon_run_seconds_total{{job="train",instance="{}:1",run="a",activity="{}"}}'
)
RUN_STEPS = 'jaxmon_run_steps_total{job="train",instance="a:1",run="a"}'
FRUITLESS = 'jaxmon_run_fruitless_attempts{{job="train",instance="{}:1",run="a"}}'

INEFFICIENT = ticket(
    "Run a of job train spent 40% of the last 6h on new steps.", job="train", run="a"
)
NAN = " of job train was finite, and is NaN or infinite since."


def stalled(age):
    """Return the page about a loop whose last step was so long ago."""
    text = f"A process of job train finished its last step of loop main {age} ago."
    return page(text, job="train", loop="main", slo="step-freshness")


CASES = {
    "a run that restarts on other hosts without a new step": Case(
        "JaxmonRunNoProgress",
        {
            FRUITLESS.format("a"): "1x10 _x5 2x10 _x50",
            FRUITLESS.format("b"): "_x30 3x10 _x5 4x10 0x20",
        },
        quiet=("5m", "20m", "40m", "65m"),
        firing={
            "50m": ticket(
                "Run a of job train is in attempt 4 in a row without a new step.",
                "job=train run=a",
            )
        },
    ),
    "a run that restarts more than it trains": Case(
        "JaxmonGoodputLow",
        {
            # Six hours of steps, then two of five minutes.
            RUN_SECONDS.format("a", "step"): "0+60x360 _x10 21600+24x400",
            RUN_SECONDS.format("a", "waiting"): "0+0x360 _x10 600+36x400",
            RUN_STEPS: "0+10x360 _x10 3600+4x400",
        },
        quiet=("5h", "7h", "8h"),
        firing={
            "12h50m": ticket(
                "Run a of job train spent 40% of the last 6h on new steps.",
                "job=train run=a",
            )
        },
    ),
    "a run that moved to another host, which continues its counters": Case(
        "JaxmonGoodputLow",
        {
            # Six hours ago, Prometheus had both.
            RUN_SECONDS.format("a", "step"): "0+24x300",
            RUN_SECONDS.format("a", "unknown"): "0+36x300",
            RUN_SECONDS.format("b", "step"): "_x301 7224+24x420",
            RUN_SECONDS.format("b", "unknown"): "_x301 10836+36x420",
            RUN_STEPS: "0+4x720",
        },
        firing={
            "11h30m": ticket(
                "Run a of job train spent 40% of the last 6h on new steps.",
                "job=train run=a",
            )
        },
    ),
    "totals that begin anew, as without their file, say nothing of six hours": Case(
        "JaxmonGoodputLow",
        {
            # From less than there were six hours ago; and from somewhat more, when the
            # steps of an efficient run, and of a good one, are half an hour's.
            RUN_SECONDS.format("a", "step"): "0+20x400 0+30x900",
            RUN_SECONDS.format("a", "unknown"): "0+40x400 0+30x900",
            RUN_STEPS: "0+4x1300",
            RUN_SECONDS.format("b", "step").replace('"a"', '"b"'): "0+54x330 0+51x900",
            RUN_SECONDS.format("b", "unknown").replace('"a"', '"b"'): (
                "0+6x330 0+9x900"
            ),
            RUN_STEPS.replace('"a:1"', '"b:1"').replace('run="a"', 'run="b"'): (
                "0+4x1230"
            ),
        },
        quiet=("7h", "8h", "9h", "10h", "11h", "12h", "20h"),
    ),
    "a run that marks no steps has no goodput": Case(
        "JaxmonGoodputLow",
        {
            RUN_SECONDS.format("a", "unknown"): "0+60x800",
            RUN_SECONDS.format("a", "step"): "0+0x800",
            RUN_STEPS: "0+0x800",
        },
        quiet=("7h", "13h"),
    ),
    "a rank for which the others wait": Case(
        "JaxmonRankStuck",
        {
            STUCK.format("a:1", "device"): "_x10 10+60x10",
            STUCK.format("b:1", "fetch"): "_x10 10+60x10",
            STUCK.format("c:1", "blocked"): "_x10 10+60x10",
        },
        quiet=("9m", "10m"),
        firing={
            "12m": ticket(
                "Processes of job train wait for c:1 (worker 0) in state blocked, for "
                "2m 10s.",
                "job=train instance=c:1 worker=0 state=blocked symptom=rank_stuck",
            )
        },
    ),
    "a checkpoint, a compile, or all of one kind accuse no rank": Case(
        "JaxmonRankStuck",
        {
            STUCK.format("a:1", "device"): "10+60x20",
            STUCK.format("b:1", "marked"): "10+60x20",
            STUCK.format("c:1", "compile"): "10+60x20",
            STUCK.format("d:1", "data_wait").replace("train", "other"): "10+60x20",
        },
        quiet=("5m", "19m"),
    ),
    "ranks that NCCL finds behind, on several sidecars": Case(
        "JaxmonRankStuck",
        {NCCL_LAGS[0]: "0+0x10 3+0x20 0+0x20", NCCL_LAGS[1]: "0+0x14 3+0x20 0+0x20"},
        quiet=("10m", "15m", "40m"),
        firing={
            "17m": ticket(
                "NCCL finds 3 lagging ranks or processes of job train; the others "
                "wait for them.",
                "job=train state=lagging symptom=nccl",
            )
        },
    ),
    "a process that NCCL considers dead": Case(
        "JaxmonRankStuck",
        {NCCL_DEAD: "0+0x10 1+0x20", NCCL_THERE: "8+0x10 7+0x20"},
        quiet=("10m", "15m"),
        firing={
            "17m": ticket(
                "NCCL finds 1 dead ranks or processes of job train; the others wait "
                "for them.",
                "job=train state=dead symptom=nccl",
            )
        },
    ),
    "a rank that is behind now and then": Case(
        "JaxmonRankStuck",
        {NCCL_LAGS[0]: "1+0x4 0+0x0 1+0x4 0+0x0 1+0x4 0+0x0", NCCL_THERE: "8+0x20"},
        quiet=("4m", "9m", "14m"),
    ),
    "a function is slower than in an earlier run": Case(
        "JaxmonSlowdown",
        {
            SLOWDOWN % ("function", "f") + 'against="past_run"}': "1+0x10 2.4+0x40",
            SLOWDOWN % ("function", "f") + 'against="earlier"}': "1+0x60",
            SLOWDOWN % ("function", "g") + 'against="earlier"}': "1.4+0x60",
        },
        quiet=("10m", "20m", "25m"),
        firing={
            "28m": ticket(
                "Function f of job train takes 2.4 times as long as in an earlier run.",
                "job=train kind=function name=f against=past_run",
            )
        },
    ),
    "steps are slower than before, for a while": Case(
        "JaxmonSlowdown",
        {SLOWDOWN % ("loop", "main") + 'against="earlier"}': "1+0x5 3+0x20 1+0x20"},
        quiet=("10m", "20m", "29m"),
        firing={
            "22m": ticket(
                "Loop main of job train takes 3 times as long as earlier in its run.",
                "job=train kind=loop name=main against=earlier",
            )
        },
    ),
    "training stalled": Case(
        "JaxmonTrainingStalled",
        {AGE: "5+0x10 5+60x29 5+0x10"},
        quiet=("10m", "20m", "44m"),
        firing={
            "24m": page(
                "A process of job train finished its last step of loop main 13m 5s "
                "ago.",
                "job=train loop=main slo=step-freshness",
            )
        },
    ),
    "a first step that compiles is not stalled, until it is stuck": Case(
        "JaxmonTrainingStalled",
        {AGE: "0+60x30", OLDEST: "0+60x30"},
        quiet=("11m", "14m"),
        firing={
            "17m": page(
                "A process of job train finished its last step of loop main 17m 0s "
                "ago.",
                "job=train loop=main slo=step-freshness",
            )
        },
    ),
    "an evaluation of 12 minutes is not stalled": Case(
        "JaxmonTrainingStalled",
        {
            AGE: "5+0x9 0+60x13 5+0x60",
            EVALUATION: "0+0x9 1+60x12 0+0x60",
            ENDED: "_x10 _x12 0+60x60",
        },
        quiet=tuple(f"{minute}m" for minute in range(10, 40)),
    ),
    "an evaluation that hangs is": Case(
        "JaxmonTrainingStalled",
        {AGE: "5+0x9 0+60x90", EVALUATION: "0+0x9 1+60x90"},
        quiet=("30m", "68m"),
        firing={
            "74m": page(
                "A process of job train finished its last step of loop main 1h 4m 0s "
                "ago.",
                "job=train loop=main slo=step-freshness",
            )
        },
    ),
    "steps of 11 minutes are not stalled, until three of them are missing": Case(
        "JaxmonTrainingStalled",
        {
            AGE: "0+60x10 0+60x10 0+60x10 0+60x60",
            STEPS.format("sum"): "0+0x10 660+0x10 1320+0x10 1980+0x60",
            STEPS.format("count"): "0+0x10 1+0x10 2+0x10 3+0x60",
        },
        quiet=("21m", "32m", "43m", "65m"),
        firing={
            "70m": page(
                "A process of job train finished its last step of loop main 37m 0s "
                "ago.",
                "job=train loop=main slo=step-freshness",
            )
        },
    ),
    "a loop that ended is not stalled": Case(
        "JaxmonTrainingStalled", {AGE: "5+0x10 stale _x60"}, quiet=("15m", "21m", "60m")
    ),
    "training that waits for data": Case(
        "JaxmonTimeLost",
        {WAITING: "0+24x60", COMPUTING: "0+36x60", AGE: "5+0x60"},
        quiet=(),
        firing={
            "60m": ticket(
                "A process of job train spent 40% of the last 30m on data_wait.",
                "job=train state=data_wait",
            )
        },
    ),
    "training that computes, and waits a little": Case(
        "JaxmonTimeLost",
        {WAITING: "0+12x60", COMPUTING: "0+48x60", AGE: "5+0x60"},
        quiet=("60m",),
    ),
    "a server that waits has no steps": Case(
        "JaxmonTimeLost", {WAITING: "0+58x60"}, quiet=("60m",)
    ),
    "training that is blocked": Case(
        "JaxmonTimeLost",
        {
            WAITING.replace("data_wait", "blocked"): "0+42x60",
            COMPUTING: "0+18x60",
            AGE: "5+0x60",
        },
        firing={
            "60m": ticket(
                "A process of job train spent 70% of the last 30m on blocked.",
                "job=train state=blocked",
            )
        },
    ),
    "the loss of a running loop stays NaN": Case(
        "JaxmonNonFinite",
        {RUN: "0+0x5 11+20x20", AGE: "5+0x60"},
        quiet=("5m", "7m"),
        firing={
            "10m": page(
                "loss of job train was finite, and is NaN or infinite since.",
                "job=train name=loss",
            )
        },
    ),
    "checkpoints that stop": Case(
        "JaxmonCheckpointFailed",
        {AGE: "5+0x500", SAVED: "0+60x500", SAVED.replace("a:1", "b:1"): "90+60x500"},
        quiet=("120m", "360m"),
        firing={
            "370m": ticket(
                "The last checkpoint of job train ended 6h 10m 0s ago.",
                "job=train symptom=checkpoint_age",
            )
        },
    ),
    "a run that ended saves nothing": Case(
        "JaxmonCheckpointFailed", {SAVED: "0+60x500"}, quiet=("370m", "480m")
    ),
    "a save that fails, after others and as the first": Case(
        "JaxmonCheckpointFailed",
        {
            UNSAVED: "0+0x10 1+0x120",
            UNSAVED.replace("a:1", "b:1"): "_x10 2+0x120",
            UNSAVED.replace("save", "restore"): "0+0x10 5+0x120",
            UPTIME: "0+60x130",
            UPTIME.replace("a:1", "b:1"): "_x10 60+60x120",
        },
        quiet=("9m", "80m"),
        firing={
            "12m": ticket(
                "3 saves of job train failed in 1h.", "job=train symptom=checkpoint"
            )
        },
    ),
    "an output that stays NaN": Case(
        "JaxmonNonFinite",
        {OUTPUTS: "0+0x5 2+0x20 0+0x10"},
        quiet=("5m", "7m", "30m"),
        firing={
            "8m": ticket(
                "train.step of job train was finite, and is NaN or infinite since.",
                "job=train name=train.step",
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
                "job=train name=loss",
            )
        },
    ),
}
