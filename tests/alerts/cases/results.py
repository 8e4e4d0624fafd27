"""Cases of alerts on results and speeds: keys, checks, compiles, slowdowns."""

from tests.alerts.promtool import Case, page, ticket


FUNCTION = 'job="train",instance="{}:1",worker="0",function="step"'
STEP = FUNCTION.format("a")
PROGRAM = {"job": "train", "function": "step"}
COMPILED = 'jaxmon_compiles_total{{{},outcome="{}"}}'
BACKEND = 'jaxmon_compile_seconds_{}{{{},phase="backend_compile"{}}}'


def replicas(number, *, shared=0, ranks=1, seconds=40):
    """
    Return processes that start and compile one program, but for *shared* ones, which
    load it.
    """
    found: dict[str, str] = {}
    for place in range(number):
        own = FUNCTION.format(f"h{place}")
        process = own.partition(",function")[0]
        outcome = "cache_hit" if place < shared else "compiled"
        found |= {
            f"jaxmon_runtime_info{{{process}}}": "1+0x60",
            f"jaxmon_processes{{{process}}}": f"{ranks}+0x60",
            f'jaxmon_program_info{{{own},fingerprint="same"}}': "_x5 1+0x60",
            COMPILED.format(own, outcome): "_x5 1+0x60",
            BACKEND.format("sum", own, ""): f"_x5 {seconds}+0x60",
        }
    return found


def executions(host, per_call, *, fingerprint="same", programs=1):
    """Return a process that runs a program ten times a minute."""
    own = FUNCTION.format(host)
    process = own.partition(",function")[0]
    return {
        f'jaxmon_program_info{{{own},fingerprint="{fingerprint}"}}': "1+0x90",
        f"jaxmon_programs_total{{{own}}}": f"{programs}+0x90",
        f"jaxmon_execution_seconds_sum{{{own}}}": f"0+{per_call * 10:g}x90",
        f"jaxmon_execution_seconds_count{{{own}}}": "0+10x90",
        f"jaxmon_jit_calls_total{{{own}}}": "0+10x90",
        f'jaxmon_step_age_seconds{{{process},loop="main"}}': "1+0x90",
    }


def mesh(*per_call, **more):
    """Return processes of one run with these times of a call."""
    found: dict[str, str] = {}
    for place, seconds in enumerate(per_call):
        found |= executions(f"h{place}", seconds, **more)
    return found


def spanning(processes: int, *, devices: int) -> dict[str, str]:
    """Return how many *devices* the program has, of two of each process."""
    found = {}
    for number in range(processes):
        own = FUNCTION.format(f"h{number}")
        process = own.partition(",function")[0]
        found[f"jaxmon_program_devices{{{own}}}"] = f"{devices}+0x90"
        for one in range(2):
            found[f'jaxmon_device_info{{{process},device="{one}"}}'] = "1+0x90"
    return found


def ranks(*waits: float, processes: int = 4) -> dict[str, str]:
    """Return processes of a job that wait for their devices for so much of the time."""
    found = {}
    for number, wait in enumerate(waits):
        labels = f'job="train",instance="h{number}:1",worker="0"'
        parts = {"device": wait / 2, "fetch": wait / 2, "data_wait": 1 - wait}
        for state, part in parts.items():
            series = f'jaxmon_wall_seconds_total{{{labels},state="{state}"}}'
            found[series] = f"0+{60 * part:g}x90"
        found[f"jaxmon_processes{{{labels}}}"] = f"{processes}+0x90"
    return found


def deviations(*of_devices: str, instance: str = "a") -> dict[str, str]:
    """Return checks that failed on a device alone, by device from 0 on."""
    labels = FUNCTION.format(instance)
    return {
        f'jaxmon_device_deviations_total{{{labels},device="{number}"}}': values
        for number, values in enumerate(of_devices)
    }


CASES = {
    "a key used twice": Case(
        "JaxmonCheckFailed",
        {f"jaxmon_key_reuse_total{{{STEP}}}": "_x5 2+0x90"},
        quiet=("4m", "70m"),
        firing={
            "8m": ticket(
                "Function step of job train reused a PRNG key 2 times in 1h.",
                "symptom=key_reuse",
                **PROGRAM,
            )
        },
    ),
    "a check that fails": Case(
        "JaxmonCheckFailed",
        {
            f'jaxmon_determinism_checks_total{{{STEP},outcome="failed"}}': "_x5 1+0x90",
            f'jaxmon_gradient_checks_total{{{STEP},outcome="passed"}}': "0+1x90",
        },
        quiet=("4m", "70m"),
        firing={
            "8m": ticket(
                "1 checks of function step of job train failed in 1h.",
                "symptom=determinism",
                **PROGRAM,
            )
        },
    ),
    "a gradient that is wrong": Case(
        "JaxmonCheckFailed",
        {f'jaxmon_gradient_checks_total{{{STEP},outcome="failed"}}': "_x5 3+0x90"},
        firing={
            "8m": ticket(
                "3 checks of function step of job train failed in 1h.",
                "symptom=gradients",
                **PROGRAM,
            )
        },
    ),
    "a device that computes wrongly": Case(
        "JaxmonSilentCorruption",
        deviations("0+0x200", "0+0x200", "0+0x9 1+0x9 2+0x9 3+0x170"),
        quiet=("15m", "28m", "190m"),
        firing={
            "40m": page(
                "Device 2 of a:1 (worker 0), job train, alone computed wrong values in "
                "3 checks within 2h.",
                "job=train instance=a:1 worker=0 device=2",
            )
        },
    ),
    "a program that depends on chance differs on any device": Case(
        "JaxmonSilentCorruption",
        {
            **deviations("0+0x9 1+0x90", "0+0x20 1+1x80", "0+0x5 2+0x95"),
            # Of another process, one differed once.
            **deviations("0+0x5 1+0x95", instance="b"),
        },
        quiet=("8m", "30m", "90m"),
    ),
    "a device whose outputs differed twice": Case(
        "JaxmonSilentCorruption",
        deviations("0+0x100", "0+0x9 1+0x30 2+0x60"),
        quiet=("15m", "60m", "95m"),
    ),
    "compiles that fail": Case(
        "JaxmonCompileFailed",
        {COMPILED.format(STEP, "failed"): "_x5 1+1x3 5+0x90"},
        quiet=("5m", "50m"),
        firing={
            "10m": ticket(
                "Function step of job train failed to compile 5 times in 30m.",
                **PROGRAM,
            )
        },
    ),
    "a compile that fails once": Case(
        "JaxmonCompileFailed",
        {COMPILED.format(STEP, "failed"): "_x5 1+0x90"},
        quiet=("8m", "20m"),
    ),
    "every replica compiles the same": Case(
        "JaxmonThunderingCompilation",
        replicas(6, shared=1),
        quiet=("4m", "40m"),
        firing={
            "8m": ticket(
                "5 processes of job train compiled the same program of function step "
                "within 10m.",
                **PROGRAM,
            )
        },
    ),
    "replicas that share a cache": Case(
        "JaxmonThunderingCompilation", replicas(6, shared=5), quiet=("8m", "14m")
    ),
    "ranks of one run compile together": Case(
        "JaxmonThunderingCompilation", replicas(6, ranks=6), quiet=("8m", "14m")
    ),
    "replicas that compile in a moment": Case(
        "JaxmonThunderingCompilation", replicas(6, seconds=1), quiet=("8m", "14m")
    ),
    "a straggler": Case(
        "JaxmonStraggler",
        mesh(1.0, 1.0, 1.0, 1.5),
        quiet=("10m",),
        firing={
            "60m": ticket(
                "Function step of job train takes 1.5 times as long on h3:1 (worker 0) "
                "as in the median process.",
                "symptom=straggler",
                **PROGRAM,
                instance="h3:1",
                worker="0",
            )
        },
    ),
    "processes that are alike": Case(
        "JaxmonStraggler", mesh(1.0, 1.1, 0.9, 1.2), quiet=("60m",)
    ),
    "who takes longest for a program with collectives waits for the others": Case(
        "JaxmonStraggler",
        mesh(1.0, 1.0, 1.0, 1.5) | spanning(4, devices=8),
        quiet=("60m",),
    ),
    "a program on all devices of its process is its own": Case(
        "JaxmonStraggler",
        mesh(1.0, 1.0, 1.0, 1.5) | spanning(4, devices=2),
        quiet=("10m",),
        firing={
            "60m": ticket(
                "Function step of job train takes 1.5 times as long on h3:1 (worker 0) "
                "as in the median process.",
                "symptom=straggler",
                **PROGRAM,
                instance="h3:1",
                worker="0",
            )
        },
    ),
    "a rank that does not wait for its device while the others do": Case(
        "JaxmonStraggler",
        ranks(0.5, 0.5, 0.55, 0.03),
        quiet=("9m",),
        firing={
            "30m": ticket(
                "h3:1 (worker 0) lets the others of job train wait for 47% of the "
                "time.",
                "job=train instance=h3:1 worker=0 symptom=rank_slow",
            )
        },
    ),
    "hosts that keep ahead of their devices, or differ little": Case(
        "JaxmonStraggler", ranks(0.9, 0.9, 0.9, 0.4), quiet=("30m",)
    ),
    "all ranks load for most of the time": Case(
        "JaxmonStraggler", ranks(0.05, 0.03, 0.2, 0.01), quiet=("30m",)
    ),
    "two jobs of one name": Case(
        "JaxmonStraggler", ranks(0.5, 0.5, 0.5, 0.02, processes=2), quiet=("30m",)
    ),
    "stages of a pipeline have programs of their own": Case(
        "JaxmonStraggler",
        mesh(1.0, 1.0, 1.0) | executions("h3", 3.0, fingerprint="other"),
        quiet=("60m",),
    ),
}
