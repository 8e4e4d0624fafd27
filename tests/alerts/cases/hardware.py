"""Cases of alerts on accelerators."""

from tests.alerts.promtool import Case, page, ticket


GPU = 'jaxmon_accelerator_up{job="gpus",instance="a:1",uuid="GPU-1"}'
OTHER_GPU, CHIP = (
    GPU.replace("GPU-1", "GPU-2"),
    GPU.replace("GPU-1", "TPU-0000:00:05.0"),
)
USES = (
    'jaxmon_device_info{job="gpus",instance="a:1",worker="0",device="0",uuid="GPU-1"}'
)
PART = 'jaxmon_gpu_mig_info{{job="gpus",instance="a:1",uuid="{}",parent="{}"}}'
NVML = 'jaxmon_collector_success{job="gpus",instance="a:1",collector="nvml"}'
XID = 'jaxmon_gpu_xid_errors_total{{job="gpus",instance="a:1",uuid="GPU-1",xid="{}"}}'
ECC = (
    'jaxmon_gpu_ecc_errors_total{{job="gpus",instance="a:1",uuid="GPU-1",'
    'severity="{}",scope="{}"}}'
)
SRAM = 'jaxmon_gpu_sram_ecc_threshold_exceeded{job="gpus",instance="a:1",uuid="GPU-1"}'
ACTION = 'jaxmon_gpu_recovery_action{job="gpus",instance="a:1",uuid="GPU-1"}'
PENDING = 'jaxmon_gpu_row_remap_pending{job="gpus",instance="a:1",uuid="GPU-1"}'
PAGES = 'jaxmon_gpu_retired_pages_pending{job="gpus",instance="a:1",uuid="GPU-1"}'
REMAP = 'jaxmon_gpu_row_remap_failure{job="gpus",instance="a:1",uuid="GPU-1"}'
THROTTLE = (
    'jaxmon_gpu_throttle_seconds_total{{job="gpus",instance="a:1",uuid="GPU-1",'
    'reason="{}"}}'
)
TPU = 'jaxmon_tpu_runtime_up{{job="pods",instance="a:1",runtime="{}"}}'
ON_TPU = 'jaxmon_runtime_info{job="pods",instance="a:1",worker="0",platform="tpu"}'

ECC_TICKET = ticket(
    "GPU GPU-1 of a:1 had uncorrectable memory errors since its last reset, or "
    "has more bad memory than it can remap.",
    "job=gpus instance=a:1 uuid=GPU-1 symptom=ecc",
)

RESET_TICKET = ticket(
    "The driver of GPU GPU-1 on a:1 requests a reset, or a memory repair is "
    "pending a reset.",
    "job=gpus instance=a:1 uuid=GPU-1 symptom=reset",
)


def labels(uuid, job="gpus", instance="a:1"):
    return {"job": job, "instance": instance, "uuid": uuid}


def in_use(uuid, job="gpus", instance="a:1"):
    """Return the page about a lost accelerator, with the labels of who uses it."""
    return page(
        f"Accelerator {uuid}, used by job {job} on {instance}, is lost; work on it "
        "fails or hangs.",
        **labels(uuid, job, instance),
    )


def down(uuid, instance="a:1"):
    """Return the ticket about a lost accelerator, with the labels of its sidecar."""
    return ticket(
        f"Accelerator {uuid} of {instance} is lost.",
        **labels(uuid, instance=instance),
    )


def loops(*jobs):
    """Return the series of loops, whose runs are at stake."""
    labels = 'job="{}",instance="a:1",worker="0",loop="main"'
    return {
        f"jaxmon_step_age_seconds{{{labels.format(job)}}}": "1+0x70" for job in jobs
    }


CASES = {
    "gpu lost under a program, which dies of it": Case(
        "JaxmonAcceleratorLost",
        {
            **loops("gpus"),
            GPU: "1+0x5 0+0x30 1+0x10",
            OTHER_GPU: "1+0x60",
            USES: "1+0x7 stale _x60",
            NVML: "1+0x60",
        },
        quiet=("5m", "6m", "37m"),
        firing={
            "7m": [*in_use("GPU-1"), *down("GPU-1")],
            "15m": [*in_use("GPU-1"), *down("GPU-1")],
            # Until it is back, although nothing runs there any more.
            "25m": [*in_use("GPU-1"), *down("GPU-1")],
        },
    ),
    "gpu lost that a sidecar of the host reports, not that of the program": Case(
        "JaxmonAcceleratorLost",
        {
            **loops("train"),
            GPU: "1+0x5 0+0x30",
            OTHER_GPU: "1+0x60",
            USES.replace('job="gpus"', 'job="train"').replace("a:1", "pod:1"): "1+0x60",
            NVML: "1+0x60",
        },
        quiet=("5m", "6m"),
        firing={"7m": [*in_use("GPU-1", "train", "pod:1"), *down("GPU-1")]},
    ),
    "gpu lost that two services share and two sidecars report": Case(
        "JaxmonAcceleratorLost",
        {
            **loops("train"),
            GPU: "1+0x5 0+0x30",
            GPU.replace("a:1", "a:2"): "1+0x5 0+0x30",
            OTHER_GPU: "1+0x60",
            USES.replace('job="gpus"', 'job="train"').replace("a:1", "pod:1"): "1+0x60",
            USES.replace('job="gpus"', 'job="web"').replace("a:1", "pod:2"): "1+0x60",
            NVML: "1+0x60",
        },
        quiet=("5m",),
        firing={
            "7m": [
                *in_use("GPU-1", "train", "pod:1"),
                *down("GPU-1"),
                *down("GPU-1", "a:2"),
            ]
        },
    ),
    "gpu lost under programs on parts of it": Case(
        "JaxmonAcceleratorLost",
        {
            **loops("gpus"),
            GPU: "1+0x5 0+0x60",
            OTHER_GPU: "1+0x70",
            # A lost GPU does not tell of its parts.
            PART.format("MIG-11", "GPU-1"): "1+0x5 stale _x60",
            PART.format("MIG-12", "GPU-1"): "1+0x5 stale _x60",
            PART.format("MIG-21", "GPU-2"): "1+0x70",
            USES.replace("GPU-1", "MIG-11").replace("a:1", "pod:1"): "1+0x70",
            USES.replace("GPU-1", "MIG-21").replace("a:1", "pod:2"): "1+0x70",
            NVML: "1+0x70",
        },
        quiet=("5m", "6m"),
        firing={
            "7m": [*in_use("GPU-1", instance="pod:1"), *down("GPU-1")],
            "60m": [*in_use("GPU-1", instance="pod:1"), *down("GPU-1")],
        },
    ),
    "gpu lost whose parts nobody uses": Case(
        "JaxmonAcceleratorLost",
        {
            GPU: "1+0x5 0+0x60",
            OTHER_GPU: "1+0x70",
            PART.format("MIG-11", "GPU-1"): "1+0x5 stale _x60",
            USES.replace("GPU-1", "MIG-21"): "1+0x70",
            PART.format("MIG-21", "GPU-2"): "1+0x70",
            NVML: "1+0x70",
        },
        quiet=("5m", "6m"),
        firing={"7m": down("GPU-1")},
    ),
    "the only gpu of a host lost": Case(
        "JaxmonAcceleratorLost",
        {**loops("gpus"), GPU: "1+0x5 0+0x30", USES: "1+0x60", NVML: "1+0x60"},
        quiet=("5m",),
        firing={"7m": [*in_use("GPU-1"), *down("GPU-1")]},
    ),
    "gpu removed from a host where nothing runs": Case(
        "JaxmonAcceleratorLost",
        {GPU: "1+0x15 0+0x30", USES: "1+0x2 stale _x60", NVML: "1+0x60"},
        quiet=("16m",),
        firing={"17m": down("GPU-1")},
    ),
    "a program elsewhere uses a device of that name": Case(
        "JaxmonAcceleratorLost",
        {
            CHIP: "1+0x5 0+0x30",
            CHIP.replace("a:1", "b:1"): "1+0x60",
            USES.replace("GPU-1", "TPU-0000:00:05.0").replace("a:1", "b:1"): "1+0x60",
        },
        quiet=("5m",),
        firing={"7m": down("TPU-0000:00:05.0")},
    ),
    "the only tpu of a host lost": Case(
        "JaxmonAcceleratorLost",
        {
            **loops("gpus"),
            CHIP: "1+0x5 0+0x30",
            USES.replace("GPU-1", "TPU-0000:00:05.0"): "1+0x60",
            NVML: "0+0x60",
        },
        quiet=("5m",),
        firing={"7m": [*in_use("TPU-0000:00:05.0"), *down("TPU-0000:00:05.0")]},
    ),
    "a driver is upgraded under a program": Case(
        "JaxmonAcceleratorLost",
        {
            GPU: "1+0x5 0+0x1500",
            OTHER_GPU: "1+0x5 0+0x1500",
            USES: "1+0x1500",
            NVML: "1+0x5 0+0x1500",
        },
        quiet=("7m", "30m", "1500m"),
    ),
    "gpu lost where only agents see the driver": Case(
        "JaxmonAcceleratorLost",
        {
            **loops("gpus"),
            GPU: "1+0x5 0+0x30",
            OTHER_GPU: "1+0x60",
            USES: "1+0x60",
            NVML: "0+0x60",
        },
        quiet=("5m",),
        firing={"7m": [*in_use("GPU-1"), *down("GPU-1")]},
    ),
    "a sidecar that restarts, and a host that is drained": Case(
        "JaxmonAcceleratorLost",
        {
            GPU: "1+0x5 stale _x3 1+0x10 stale _x60",
            USES: "1+0x5 stale _x3 1+0x10 stale _x60",
            NVML: "1+0x5 stale _x3 0+0x0 1+0x9 stale _x60",
        },
        quiet=tuple(f"{minute}m" for minute in range(1, 40)),
    ),
    "the driver asks for a reset": Case(
        "JaxmonGpuFault",
        {ACTION: "0+0x5 1+0x20 0+0x20", PENDING: "0+0x50", PAGES: "0+0x50"},
        quiet=("5m", "15m", "27m"),
        firing={"16m": RESET_TICKET},
    ),
    "bad memory waits for a reset": Case(
        "JaxmonGpuFault",
        {ACTION: "0+0x50", PENDING: "0+0x5 1+0x20 0+0x30", PAGES: "0+0x50"},
        quiet=("15m", "27m"),
        firing={"16m": RESET_TICKET},
    ),
    "bad memory of an older gpu waits for a reset": Case(
        "JaxmonGpuFault",
        {PENDING: "0+0x50", PAGES: "0+0x5 1+0x20"},
        quiet=("15m",),
        firing={"16m": RESET_TICKET},
    ),
    "critical Xid": Case(
        "JaxmonGpuFault",
        {XID.format(79): "0+0x5 1+0x40", XID.format(13): "0+1x40"},
        quiet=("5m",),
        firing={
            "6m": ticket(
                "GPU GPU-1 of a:1 reported Xid 79 1 times in 10m, within the last 1d.",
                "job=gpus instance=a:1 uuid=GPU-1 xid=79 symptom=xid",
            )
        },
    ),
    "critical Xid whose series it starts": Case(
        "JaxmonGpuFault",
        {XID.format(79): "_x20 1+0x40"},
        quiet=("18m",),
        firing={
            "21m": ticket(
                "GPU GPU-1 of a:1 reported Xid 79 1 times in 10m, within the last 1d.",
                "job=gpus instance=a:1 uuid=GPU-1 xid=79 symptom=xid",
            )
        },
    ),
    "uncorrected memory error": Case(
        "JaxmonGpuFault",
        {
            ECC.format("uncorrected", "volatile"): "0+0x10 1+0x30 0+0x20",
            ECC.format("uncorrected", "aggregate"): "70+0x10 71+0x40",
            REMAP: "0+0x50",
        },
        # Until it is reset.
        quiet=("10m", "42m"),
        firing={"12m": ECC_TICKET, "40m": ECC_TICKET},
    ),
    "row that cannot be replaced": Case(
        "JaxmonGpuFault",
        {REMAP: "0+0x10 1+0x40", ECC.format("uncorrected", "volatile"): "0+0x50"},
        quiet=("10m",),
        firing={"11m": ECC_TICKET, "50m": ECC_TICKET},
    ),
    "caches wear out": Case(
        "JaxmonGpuFault",
        {REMAP: "0+0x50", SRAM: "0+0x10 1+0x40"},
        quiet=("10m",),
        firing={"11m": ECC_TICKET, "50m": ECC_TICKET},
    ),
    "memory errors of a lifetime, or corrected": Case(
        "JaxmonGpuFault",
        {
            ECC.format("uncorrected", "volatile"): "0+0x50",
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
                "GPU GPU-1 on a:1 was throttled for 20% of the last 15m, for "
                "reasons other than its power limit.",
                "job=gpus instance=a:1 uuid=GPU-1",
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
        "JaxmonMonitoringDegraded",
        {TPU.format(8431): "1+0x5 0+0x20 1+0x10", ON_TPU: "1+0x40"},
        quiet=("5m", "15m", "27m"),
        firing={
            "17m": ticket(
                "A program of job pods on a:1 uses TPUs, but no TPU runtime "
                "responds there; chip activity is not visible.",
                "job=pods instance=a:1 symptom=tpu_runtime",
            )
        },
    ),
    "idle TPUs, and one runtime of several": Case(
        "JaxmonMonitoringDegraded",
        {
            TPU.format(8431): "0+0x60",
            TPU.format(8432): "0+0x20 1+0x40",
            ON_TPU: "_x25 1+0x35",
            ON_TPU.replace("tpu", "gpu"): "1+0x60",
        },
        quiet=("15m", "30m", "60m"),
        firing={},
    ),
}
