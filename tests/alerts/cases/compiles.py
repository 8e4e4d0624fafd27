"""Cases of alerts on compiles."""

from tests.alerts.promtool import Case, ticket


STORM = (
    'jaxmon_recompiles_total{job="train",instance="a:1",worker="0",function="step",'
    'cause="shape"}'
)
STORM_START = 'process_start_time_seconds{job="train",instance="a:1",worker="0"}'
COLD = 'jaxmon_requests_total{job="web",route="/gen",outcome="success",start="cold"}'
WARM = 'jaxmon_requests_total{job="web",route="/gen",outcome="success",start="warm"}'
OLDEST = 'jaxmon_compile_oldest_seconds{job="train",instance="a:1"}'

WAITED = ticket(
    "13.04% of requests to route /gen of job web waited for a compile in the last 10m.",
    job="web",
    route="/gen",
    deploy="expected",
)
DIVERGED = ticket(
    "The processes of job train compiled 2 different programs for function step, which "
    "runs on all their devices; its collectives will deadlock.",
    job="train",
    function="step",
)


def running(worker, function, fingerprint, *, devices, ranks, host="a:1", job="train"):
    """
    Return series of a process with 4 devices, one of *ranks*, that runs a program: it
    compiles for the fourth minute, and has another program from then on.
    """
    process = f'job="{job}",instance="{host}",worker="{worker}"'
    own = f'{process},function="{function}"'
    local = {
        f'jaxmon_device_info{{{process},device="{number}"}}': "1+0x60"
        for number in range(4)
    }
    return {
        **local,
        f"jaxmon_processes{{{process}}}": f"{ranks}+0x60",
        f"jaxmon_program_devices{{{own}}}": f"{devices}+0x60",
        f'jaxmon_program_info{{{own},fingerprint="first"}}': "1+0x3 stale _x60",
        f'jaxmon_program_info{{{own},fingerprint="{fingerprint}"}}': "_x4 1+0x60",
        f"jaxmon_compiles_in_progress{{{process}}}": "0+0x2 1+0x0 0+0x60",
    }


CASES = {
    "recompile storm": Case(
        "JaxmonRecompileStorm",
        {STORM: "0+0x10 5+5x9 50+0x30"},
        quiet=("10m", "14m", "27m"),
        firing={
            "16m": ticket(
                "Function step of job train recompiled 25 times in 10m in one process.",
                "job=train function=step deploy=expected",
            )
        },
    ),
    "a few recompiles of processes that follow each other": Case(
        "JaxmonRecompileStorm",
        {STORM: "0 15 15 _ 0 15+0x20", STORM_START: "1000+0x2 _ 2000+0x30"},
        quiet=("6m", "8m", "12m", "15m"),
    ),
    "a few recompiles of each of many processes": Case(
        "JaxmonRecompileStorm",
        {
            STORM.replace("a:1", host).replace('"0"', f'"{worker}"'): "0+0x10 5+0x30"
            for host in ("a:1", "b:1")
            for worker in range(8)
        },
        quiet=("11m", "15m", "20m"),
    ),
    "cold starts": Case(
        "JaxmonColdStartBudgetBurn/cold_requests",
        {COLD: "0+0x10 2+2x19 40+0x30", WARM: "0+8x60"},
        quiet=("10m", "15m", "36m"),
        firing={
            "17m": ticket(
                "13.04% of requests to route /gen of job web waited for a compile "
                "in the last 10m.",
                "job=web route=/gen deploy=expected symptom=cold_requests",
            )
        },
    ),
    "delayed requests": Case(
        "JaxmonColdStartBudgetBurn/cold_requests",
        {COLD.replace('"cold"', '"delayed"'): "0+0x10 2+2x19 40+0x30", WARM: "0+8x60"},
        quiet=("10m", "15m", "36m"),
        firing={
            "17m": ticket(
                "13.04% of requests to route /gen of job web waited for a compile "
                "in the last 10m.",
                "job=web route=/gen deploy=expected symptom=cold_requests",
            )
        },
    ),
    "few of few requests are cold": Case(
        "JaxmonColdStartBudgetBurn/cold_requests",
        {COLD: "0+0x10 1+0x30", WARM: "0+0x10 1+0x30"},
        quiet=("12m", "20m"),
    ),
    "a small share of many requests is cold": Case(
        "JaxmonColdStartBudgetBurn/cold_requests",
        {COLD: "0+2x40", WARM: "0+98x40"},
        quiet=("12m", "30m"),
    ),
    "compile stuck": Case(
        "JaxmonCompileStuck",
        {OLDEST: "0+60x20 0+0x10"},
        quiet=("15m", "21m"),
        firing={
            "16m": ticket(
                "A process of job train on a:1 has been compiling one program for "
                "16m 0s.",
                "job=train instance=a:1",
            )
        },
    ),
    "ranks with different programs": Case(
        "JaxmonProgramsDiverge",
        {
            **running(0, "step", "one", devices=16, ranks=4, host="a:1"),
            **running(1, "step", "one", devices=16, ranks=4, host="a:1"),
            **running(0, "step", "one", devices=16, ranks=4, host="b:1"),
            **running(1, "step", "other", devices=16, ranks=4, host="b:1"),
            # Each rank's own, of the shapes of its data.
            **running(0, "prepare", "one", devices=1, ranks=4, host="a:1"),
            **running(1, "prepare", "other", devices=4, ranks=4, host="a:1"),
        },
        quiet=("3m", "13m"),
        firing={
            "14m": ticket(
                "The processes of job train compiled 2 different programs for "
                "function step, which runs on all their devices; its collectives "
                "will deadlock.",
                "job=train function=step",
            )
        },
    ),
    "ranks with one program": Case(
        "JaxmonProgramsDiverge",
        {
            **running(0, "step", "one", devices=8, ranks=2),
            **running(1, "step", "one", devices=8, ranks=2),
        },
        quiet=("3m", "4m", "14m", "30m"),
    ),
    "replicas that serve apart": Case(
        "JaxmonProgramsDiverge",
        {
            **running(0, "predict", "one", devices=4, ranks=1),
            **running(1, "predict", "other", devices=4, ranks=1),
        },
        quiet=("14m", "30m"),
    ),
    "stages of a pipeline": Case(
        "JaxmonProgramsDiverge",
        {
            **running(0, "stage", "one", devices=8, ranks=4, host="a:1"),
            **running(1, "stage", "one", devices=8, ranks=4, host="a:1"),
            **running(0, "stage", "other", devices=8, ranks=4, host="b:1"),
            **running(1, "stage", "other", devices=8, ranks=4, host="b:1"),
        },
        quiet=("14m", "30m"),
    ),
    "a run beside others of the same job": Case(
        "JaxmonProgramsDiverge",
        {
            **running(0, "step", "one", devices=8, ranks=2, host="a:1"),
            **running(1, "step", "other", devices=8, ranks=2, host="a:1"),
            # Its evaluation, which compiles all the time, and single processes.
            **running(2, "step", "other", devices=4, ranks=1, host="a:1"),
            **running(3, "step", "third", devices=4, ranks=1, host="a:1"),
            'jaxmon_compiles_in_progress{job="train",instance="a:1",worker="2"}': (
                "1+0x60"
            ),
        },
        quiet=("3m", "13m"),
        firing={
            "14m": ticket(
                "The processes of job train compiled 2 different programs for "
                "function step, which runs on all their devices; its collectives "
                "will deadlock.",
                "job=train function=step",
            )
        },
    ),
    "two runs of one size under one job": Case(
        "JaxmonProgramsDiverge",
        {
            **running(0, "step", "one", devices=8, ranks=2, host="a:1"),
            **running(1, "step", "one", devices=8, ranks=2, host="a:1"),
            **running(0, "step", "other", devices=8, ranks=2, host="b:1"),
            **running(1, "step", "other", devices=8, ranks=2, host="b:1"),
        },
        quiet=("14m", "30m"),
    ),
    "a run of which one rank is not seen": Case(
        "JaxmonProgramsDiverge",
        {
            **running(0, "step", "one", devices=12, ranks=3),
            **running(1, "step", "other", devices=12, ranks=3),
        },
        quiet=("13m",),
        firing={
            "14m": ticket(
                "The processes of job train compiled 2 different programs for "
                "function step, which runs on all their devices; its collectives "
                "will deadlock.",
                "job=train function=step",
            )
        },
    ),
    "two runs, each of another job": Case(
        "JaxmonProgramsDiverge",
        {
            **running(0, "step", "one", devices=4, ranks=1, job="train"),
            **running(0, "step", "other", devices=4, ranks=1, job="tune"),
        },
        quiet=("14m", "30m"),
    ),
    "a rank that compiles for long while others wait": Case(
        "JaxmonProgramsDiverge",
        {
            **running(0, "step", "one", devices=8, ranks=2),
            **running(1, "step", "first", devices=8, ranks=2),
            'jaxmon_compiles_in_progress{job="train",instance="a:1",worker="1"}': (
                "0+0x2 1+0x40 0+0x5"
            ),
        },
        quiet=("14m", "30m", "43m"),
    ),
    "ranks that restart one after the other": Case(
        "JaxmonProgramsDiverge",
        {
            **running(0, "step", "one", devices=8, ranks=2),
            **{
                name: values.replace("_x4 1+0x60", "_x9 1+0x60")
                for name, values in running(
                    1, "step", "one", devices=8, ranks=2
                ).items()
            },
        },
        quiet=("4m", "8m", "14m", "20m"),
    ),
}
