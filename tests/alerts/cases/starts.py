"""Cases of alerts on starts: deployments, crash loops, runs that died."""

from tests.alerts.promtool import Case, Firing, page, ticket


PROCESS = 'job="web",instance="{}:1",worker="1"'
STARTED = "process_start_time_seconds{{{}}}"
UPTIME = "jaxmon_uptime_seconds{{{}}}"
RUNTIME = 'jaxmon_runtime_info{{{},jax="0.10.2"}}'
CRASHES = 'jaxmon_agent_crashes_total{job="train",instance="a:1",worker="0"}'
STEPS = 'jaxmon_steps_total{job="train",instance="a:1",worker="0",loop="main"}'
READY = 'jaxmon_ready{job="web",instance="a:1",worker="0"}'
LATE = (
    'jaxmon_compiles_after_ready_total{{job="web",instance="{}:1",worker="0",'
    'function="{}"}}'
)
WARMED = (
    'jaxmon_warmup_signatures_total{{job="web",instance="{}:1",worker="0",result="{}"}}'
)
DIED = 'jaxmon_agent_died{{job="train",instance="a:1",worker="0",loop="{}"}}'


def process(host, uptime, started="0+0x200"):
    """Return the series of a process that has run for *uptime*."""
    own = PROCESS.format(host)
    return {
        UPTIME.format(own): uptime,
        STARTED.format(own): started,
        RUNTIME.format(own): "1+0x200",
    }


def replicas(old, young):
    """Return *old* replicas, and *young* ones that start after 20 minutes."""
    found: dict[str, str] = {}
    for number in range(old):
        found |= process(f"old{number}", "90000+60x200")
    for number in range(young):
        found |= process(f"young{number}", "90000+60x19 0+60x180", "0+0x19 1200+0x180")
    return found


def deploy(share):
    """Return what is expected while this share of the processes is young."""
    text = f"{share} of the processes of job web started within the last 10m."
    return [Firing({"severity": "info", "job": "web"}, text)]


ANOTHER = 'job="train",instance="b1:1",worker="0"'
ENDED = [
    *page(
        "1 processes of job train ended in the middle of loop main.",
        "job=train loop=main",
    ),
    *ticket(
        "A process of job train on a:1 (worker 0) ended in the middle of loop main.",
        "job=train instance=a:1 worker=0 loop=main",
    ),
]

CASES = {
    "deploy in progress": Case(
        "JaxmonDeployInProgress",
        process("a", "0+60x19 0+60x180", "0+0x19 1200+0x180"),
        quiet=("11m", "19m", "31m"),
        firing={"22m": deploy("100%")},
    ),
    "a third of the replicas": Case(
        "JaxmonDeployInProgress",
        replicas(4, 2),
        quiet=("19m", "31m"),
        firing={"22m": deploy("33.33%")},
    ),
    "one young replica of thirty is no deployment": Case(
        "JaxmonDeployInProgress", replicas(29, 1), quiet=("19m", "22m", "25m", "31m")
    ),
    "a deployment ends after an hour": Case(
        "JaxmonDeployInProgress",
        # Replaced every eight minutes, fewer than four times an hour by one name.
        {
            key: value
            for number in range(40)
            for key, value in process(
                f"r{number}", f"_x{8 * number} 0+60x8 stale", "_x200"
            ).items()
            if "start_time" not in key
        }
        | {
            RUNTIME.format(PROCESS.format(f"r{number}")): f"_x{8 * number} 1+0x8 stale"
            for number in range(40)
        },
        quiet=("70m", "80m", "120m"),
        firing={"40m": deploy("100%")},
    ),
    "a sidecar that starts is no deployment": Case(
        "JaxmonDeployInProgress",
        {UPTIME.format(PROCESS.format("a")): "0+60x30"},
        quiet=("1m", "5m"),
    ),
    "a crash loop is no deployment": Case(
        "JaxmonDeployInProgress",
        process("a", "1+0x200", "0+120x200"),
        quiet=("10m", "50m"),
    ),
    "a replica that does not get ready": Case(
        "JaxmonWarmupFailed",
        {
            READY: "0+0x60",
            READY.replace("a:1", "b:1"): "0+0x25 1+0x35",
            READY.replace("a:1", "c:1"): "1+0x60",
        },
        quiet=("20m", "29m"),
        firing={
            "32m": ticket(
                "A process of job web on a:1 (worker 0) has not been ready for 30m.",
                "job=web instance=a:1 worker=0 symptom=not_ready",
            )
        },
    ),
    "signatures that fail to warm up, before the first scrape and after": Case(
        "JaxmonWarmupFailed",
        {
            WARMED.format("a", "failed"): "_x10 2+0x120",
            WARMED.format("a", "warmed"): "_x10 5+0x120",
            UPTIME.format('job="web",instance="a:1",worker="0"'): "_x10 60+60x120",
            WARMED.format("b", "failed"): "0+0x10 1+0x120",
            WARMED.format("b", "warmed"): "0+1x10 10+0x120",
            UPTIME.format('job="web",instance="b:1",worker="0"'): "0+60x130",
        },
        quiet=("9m", "80m"),
        firing={
            "12m": ticket(
                "3 signatures of job web failed to warm up in 1h.",
                "job=web symptom=warmup_failed",
            )
        },
    ),
    "a service that compiles although it is ready": Case(
        "JaxmonWarmupFailed",
        {
            LATE.format("a", "serve.predict"): "_x20 2+0x120",
            LATE.format("b", "serve.predict"): "0+0x30 1+0x110",
            UPTIME.format('job="web",instance="a:1",worker="0"'): "0+60x140",
            UPTIME.format('job="web",instance="b:1",worker="0"'): "0+60x140",
        },
        quiet=("19m", "100m"),
        firing={
            "35m": ticket(
                "Processes of job web that were ready compiled function serve.predict "
                "3 times in 1h.",
                "job=web function=serve.predict symptom=after_ready",
            )
        },
    ),
    "a warm-up without failures": Case(
        "JaxmonWarmupFailed",
        {
            WARMED.format("a", "failed"): "0+0x60",
            WARMED.format("a", "warmed"): "0+1x10 10+0x50",
        },
        quiet=("5m", "30m"),
    ),
    "a crash loop before the first step": Case(
        "JaxmonCrashLoop",
        {CRASHES: "0+0x10 1+0x2 2+0x2 3+0x60"},
        quiet=("10m", "15m", "50m"),
        firing={
            "18m": page(
                "1 processes of job train keep crashing before a step or request.",
                "job=train",
            )
            + ticket(
                "A process of job train on a:1 (worker 0) crashed 3 times in 15m, "
                "before a step or request.",
                "job=train instance=a:1 worker=0",
            )
        },
    ),
    "crashes between steps are no crash loop before the first": Case(
        "JaxmonCrashLoop",
        {CRASHES: "0+0x10 1+0x2 2+0x2 3+0x60", STEPS: "0+10x5 0+10x60"},
        quiet=("16m", "18m", "30m"),
    ),
    "batch jobs that end": Case(
        "JaxmonCrashLoop",
        {
            CRASHES: "0+0x60",
            STARTED.format('job="train",instance="a:1",worker="0"'): "0+60x60",
            RUNTIME.format('job="train",instance="a:1",worker="0"'): "1+0x60",
        },
        quiet=("16m", "30m"),
    ),
    "a crash loop seen without a sidecar": Case(
        "JaxmonCrashLoop",
        process(
            "a", "1+0x60", "0+0x10 " + " ".join(f"{n * 180}+0x2" for n in range(9))
        ),
        quiet=("10m",),
        firing={
            "28m": page(
                "1 processes of job web keep crashing before a step or request.",
                "job=web",
            )
            + ticket(
                "A process of job web on a:1 (worker 1) crashed 5 times in 15m, "
                "before a step or request.",
                "job=web instance=a:1 worker=1",
            )
        },
    ),
    "training that died": Case(
        "JaxmonTrainingDied",
        {DIED.format("main"): "0+0x10 1+0x20 0+0x30"},
        quiet=("10m", "12m", "50m"),
        firing={"15m": ENDED},
    ),
    "a death that no one mended in six hours": Case(
        "JaxmonTrainingDied",
        {DIED.format("main"): "0+0x10 1+0x600"},
        quiet=("400m", "500m"),
        firing={"300m": ENDED},
    ),
    "one of several runs in a job that died": Case(
        "JaxmonTrainingDied",
        {
            DIED.format("main"): "0+0x10 1+0x20",
            f'jaxmon_step_age_seconds{{{ANOTHER},loop="main"}}': "1+0x40",
            f"jaxmon_processes{{{ANOTHER}}}": "1+0x40",
        },
        quiet=("10m", "12m"),
        firing={"15m": ENDED[1:]},
    ),
    "one of two hundred crashes again and again": Case(
        "JaxmonCrashLoop",
        {
            CRASHES: "0+0x10 1+0x2 2+0x2 3+0x60",
            **{
                RUNTIME.format(ANOTHER.replace("1", str(n), 1)): "1+0x60"
                for n in range(200)
            },
        },
        quiet=("10m", "15m", "50m"),
        firing={
            "18m": ticket(
                "A process of job train on a:1 (worker 0) crashed 3 times in 15m, "
                "before a step or request.",
                "job=train instance=a:1 worker=0",
            )
        },
    ),
    "a process without a loop that died": Case(
        "JaxmonTrainingDied", {DIED.format(""): "0+0x10 1+0x20"}, quiet=("15m", "25m")
    ),
}
