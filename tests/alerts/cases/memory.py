"""Cases of alerts on memory."""

from tests.alerts.promtool import Case, ticket


OOM = 'jaxmon_errors_total{job="train",function="step",kind="oom"}'
MEMORY = (
    'jaxmon_device_memory_bytes{{job="web",instance="a:1",worker="1",device="0",'
    'kind="{}"}}'
)
LEAK = 'jaxmon_leak_growth_bytes{job="train",instance="a:1",worker="0",device="0"}'
OURS = 'jaxmon_build_info{job="web",instance="a:1",worker="1",version="1"}'
RSS = 'process_resident_memory_bytes{job="web",instance="a:1",worker="1"}'
WORKING = RSS.replace("process_resident", "jaxmon_container").replace(
    "memory_bytes", "memory_working_set_bytes"
)
CONTAINER = WORKING.replace("working_set", "limit")
UPTIME = 'jaxmon_uptime_seconds{job="web",instance="a:1",worker="1"}'

CASES = {
    "out of memory": Case(
        "JaxmonOutOfMemory",
        {OOM: "0+0x10 2+0x30"},
        quiet=("10m", "22m"),
        firing={
            "12m": ticket(
                "Function step of job train ran out of device memory 2 times in 10m.",
                "job=train function=step",
            )
        },
    ),
    "out of memory at the first sight of a function": Case(
        "JaxmonOutOfMemory",
        {OOM: "_x10 1+0x30"},
        quiet=("9m", "22m", "40m"),
        firing={
            "12m": ticket(
                "Function step of job train ran out of device memory 1 times in 10m.",
                "job=train function=step",
            )
        },
    ),
    # Each runs out of memory in its first call, and is killed.
    "out of memory again and again": Case(
        "JaxmonOutOfMemory",
        {
            OOM: "_ 1 1 stale " * 15,
            "jaxmon_counting_seconds"
            + OOM[OOM.index("{") : OOM.index(",function")]
            + "}": "5 65 125 stale " * 15,
        },
        quiet=("1m",),
        firing={
            at: ticket(
                f"Function step of job train ran out of device memory {number} times "
                "in 10m.",
                "job=train function=step",
            )
            for at, number in (("12m", 2), ("30m", 3), ("50m", 3), ("56m", 2))
        },
    ),
    "other errors are no lack of memory": Case(
        "JaxmonOutOfMemory", {OOM.replace("oom", "nan"): "0+1x30"}, quiet=("20m",)
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
                "95% of the memory job web may allocate on device 0 of a:1 "
                "(worker 1) is in use.",
                "job=web instance=a:1 worker=1 device=0",
            )
        },
    ),
    "a device without a limit": Case(
        "JaxmonDeviceMemoryHigh",
        {MEMORY.format("in_use"): "50+0x40", MEMORY.format("limit"): "0+0x40"},
        quiet=("30m",),
    ),
    "memory leak": Case(
        "JaxmonMemoryLeak",
        {LEAK: "0+0x10 4194304+1048576x40 0+0x20"},
        quiet=("10m", "30m", "52m"),
        firing={
            "31m": ticket(
                "A process of job train on a:1 (worker 0) keeps accumulating "
                "arrays on device 0: 24MiB in the agent's last window.",
                "job=train instance=a:1 worker=0 device=0",
            )
        },
    ),
    "a cache that fills for a while": Case(
        "JaxmonMemoryLeak",
        {LEAK: "0+0x10 4194304+1048576x18 0+0x40"},
        quiet=tuple(f"{minute}m" for minute in range(5, 60, 5)),
    ),
    "host memory growth": Case(
        "JaxmonHostMemoryGrowth/host_memory_growth",
        {
            RSS: "1000+0x120 1003+3x199 1600+0x200",
            UPTIME: "0+60x600",
            OURS: "1+0x600",
            # A program of somebody else.
            RSS.replace("web", "etcd"): "1000+0x120 1003+3x199 1600+0x200",
            UPTIME.replace("web", "etcd"): "0+60x600",
        },
        quiet=("120m", "180m", "420m"),
        firing={
            "300m": ticket(
                "A process of job web on a:1 (worker 1) grew by 12.41% in the "
                "last 1h, and in the 1h before.",
                "job=web instance=a:1 worker=1 symptom=host_memory_growth",
            )
        },
    ),
    "a container that fills up": Case(
        "JaxmonHostMemoryGrowth/container_memory",
        {WORKING: "100+0x60 100+2x200", CONTAINER: "1000+0x260"},
        quiet=("60m", "100m"),
        firing={
            "180m": ticket(
                "A process of job web on a:1 (worker 1) reaches the memory limit of "
                "its container in 5h 31m 0s, if it grows on as in the last 30m; the "
                "kernel kills it then.",
                "job=web instance=a:1 worker=1 symptom=container_memory",
            )
        },
    ),
    "a container that fills up, and no more": Case(
        "JaxmonHostMemoryGrowth/container_memory",
        {WORKING: "100+20x30 700+0x200", CONTAINER: "1000+0x260"},
        quiet=tuple(f"{minute}m" for minute in range(10, 200, 10)),
    ),
    "a program that loads its model, then more": Case(
        "JaxmonHostMemoryGrowth/host_memory_growth",
        {RSS: "100+30x30 1000+0x169 1500+0x300", UPTIME: "0+60x600", OURS: "1+0x600"},
        quiet=tuple(f"{minute}m" for minute in range(10, 300, 3)),
    ),
}
