"""
Alerts on causes: what to look at first when an objective is missed, and what will
miss one soon.

Each function makes one alert from the thresholds.
"""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog
from jaxmon.artifacts import promql
from jaxmon.artifacts.alerts.model import DEPLOY_NOISE, Alert
from jaxmon.artifacts.promql import counter, eq, gauge, gauge_over
from jaxmon.artifacts.slo import Thresholds, durations
from jaxmon.artifacts.slo.thresholds import INFO, PAGE, TICKET


DEPLOY_ALERT = "JaxmonDeployInProgress"
STALLED_ALERT, STALLED_SLO = "JaxmonTrainingStalled", "step-freshness"

_PROCESS = ("job", "instance", "worker")


def cause_alerts(thresholds: Thresholds, scale: float) -> Iterator[Alert]:
    """
    Yield the alerts, `DEPLOY_ALERT` first: Alertmanager must know it before those
    that it mutes. *scale* divides the durations that are no thresholds.
    """
    hour, day = (durations.scaled(one, scale) for one in ("1h", "1d"))
    yield _deploy_in_progress(thresholds, hour)
    yield _recompile_storm(thresholds)
    yield _cold_starts(thresholds)
    yield _out_of_memory(thresholds)
    yield _device_memory_high(thresholds)
    yield _memory_leak(thresholds)
    yield _host_memory_growth(thresholds)
    yield _training_stalled(thresholds)
    yield _compile_stuck(thresholds)
    yield _gpu_lost(thresholds)
    yield _gpu_xid(thresholds)
    yield _gpu_ecc_errors(thresholds)
    yield _gpu_throttled(thresholds)
    yield _tpu_runtime_down(thresholds)
    yield _target_down(thresholds, day)
    yield _service_vanished(thresholds, hour)
    yield _collector_down(thresholds, day)
    yield _agent_hook_inactive(thresholds)


def _deploy_in_progress(thresholds: Thresholds, hour: str) -> Alert:
    started = gauge(catalog.PROCESS_START_TIME_SECONDS)
    # Only agents have runtime information: a new sidecar is no deployment.
    age = (promql.time() - started).and_(gauge(catalog.RUNTIME_INFO), *_PROCESS)
    young = age < durations.seconds(thresholds.deploy_window)
    restarts = promql.gauge_changes(catalog.PROCESS_START_TIME_SECONDS, hour)
    return Alert(
        name=DEPLOY_ALERT,
        # A process that restarts again and again would mute its own alerts.
        expr=young.min("job").unless(restarts.max("job") > thresholds.deploy_restarts),
        severity=INFO,
        summary="Processes of a job started a short while ago; compiles are expected.",
        description=(
            "The youngest process of job {{ $labels.job }} started "
            "{{ $value | humanizeDuration }} ago. Tickets about compiles wait until it "
            f"has run for {thresholds.deploy_window}."
        ),
    )


def _recompile_storm(thresholds: Thresholds) -> Alert:
    window = thresholds.recompile_window
    recompiles = counter(catalog.RECOMPILES).increase(window)
    return Alert(
        name="JaxmonRecompileStorm",
        expr=recompiles.sum("job", "function") > thresholds.recompiles,
        severity=TICKET,
        summary="A function is compiled again and again.",
        description=(
            "Function {{ $labels.function }} of job {{ $labels.job }} was recompiled "
            f"{{{{ $value | humanize }}}} times within {window}."
        ),
        labels=DEPLOY_NOISE,
    )


def _cold_starts(thresholds: Thresholds) -> Alert:
    window, by = thresholds.cold_window, ("job", "route")
    cold = counter(catalog.REQUESTS, eq("start", "cold")).increase(window).sum(*by)
    every = counter(catalog.REQUESTS).increase(window).sum(*by)
    share = promql.ratio(cold, every) > thresholds.cold_share
    return Alert(
        name="JaxmonColdStarts",
        expr=share.and_(cold > thresholds.cold_requests),
        severity=TICKET,
        summary="Many requests wait for a compile.",
        description=(
            "{{ $value | humanizePercentage }} of the requests for route "
            "{{ $labels.route }} of job {{ $labels.job }} waited for a compile within "
            f"{window}."
        ),
        labels=DEPLOY_NOISE,
    )


def _out_of_memory(thresholds: Thresholds) -> Alert:
    window = thresholds.oom_window
    failures = counter(catalog.ERRORS, eq("kind", "oom"))
    return Alert(
        name="JaxmonOutOfMemory",
        # Often the first thing that a function does: its series is born with it.
        expr=failures.rise(window).sum("job", "function") > 0,
        severity=TICKET,
        summary="A device ran out of memory.",
        description=(
            "Function {{ $labels.function }} of job {{ $labels.job }} ran out of "
            f"device memory {{{{ $value | humanize }}}} times within {window}."
        ),
    )


def _device_memory_high(thresholds: Thresholds) -> Alert:
    by = (*_PROCESS, "device")
    used = gauge(catalog.DEVICE_MEMORY_BYTES, eq("kind", "in_use")).max(*by)
    limit = gauge(catalog.DEVICE_MEMORY_BYTES, eq("kind", "limit")).max(*by)
    return Alert(
        name="JaxmonDeviceMemoryHigh",
        expr=promql.ratio(used, limit) > thresholds.device_memory,
        for_=thresholds.device_memory_for,
        severity=TICKET,
        summary="The memory of a device is nearly used up.",
        description=(
            "{{ $value | humanizePercentage }} of what job {{ $labels.job }} may "
            "allocate on device {{ $labels.device }} of {{ $labels.instance }} "
            "{{ with $labels.worker }}(worker {{ . }}) {{ end }}is in use."
        ),
    )


def _memory_leak(thresholds: Thresholds) -> Alert:
    by = (*_PROCESS, "device")
    return Alert(
        name="JaxmonMemoryLeak",
        expr=gauge(catalog.LEAK_GROWTH_BYTES).max(*by) > 0,
        # The agent has seen a window of growth already; a cache that fills ends.
        for_=thresholds.leak_for,
        severity=TICKET,
        summary="Live arrays of a process only grow.",
        description=(
            "A process of job {{ $labels.job }} on {{ $labels.instance }} "
            "{{ with $labels.worker }}(worker {{ . }}) {{ end }}keeps more and more on "
            "device {{ $labels.device }}: {{ $value | humanize1024 }}B more within the "
            "agent's last window."
        ),
    )


def _host_memory_growth(thresholds: Thresholds) -> Alert:
    window = thresholds.host_memory_window
    rss = catalog.PROCESS_RESIDENT_MEMORY_BYTES
    growth = promql.gauge_slope(rss, window) * durations.seconds(window)
    mean = gauge_over(rss, "avg", window)
    age = promql.time() - gauge(catalog.PROCESS_START_TIME_SECONDS).max(*_PROCESS)
    return Alert(
        name="JaxmonHostMemoryGrowth",
        # A program that starts grows; that must have left the window.
        expr=((growth / mean).max(*_PROCESS) > thresholds.host_memory_growth).and_(
            age > 2 * durations.seconds(window)
        ),
        # A step, such as loading more data, is within the window for no longer.
        for_=window,
        severity=TICKET,
        summary="The memory of a process grows and grows.",
        description=(
            "A process of job {{ $labels.job }} on {{ $labels.instance }} "
            "{{ with $labels.worker }}(worker {{ . }}) {{ end }}grew by "
            f"{{{{ $value | humanizePercentage }}}} within {window}, and the "
            f"{window} before."
        ),
    )


def _training_stalled(thresholds: Thresholds) -> Alert:
    # The first step of a large model compiles for long; that is progress, for a while.
    oldest = gauge(catalog.COMPILE_OLDEST_SECONDS)
    compiling = (oldest > 0) < durations.seconds(thresholds.stuck_after)
    age = promql.time() - gauge(catalog.LAST_STEP_TIMESTAMP_SECONDS)
    age = age.unless(compiling, *_PROCESS)
    return Alert(
        name=STALLED_ALERT,
        # One stuck process stops the others: the oldest step is what counts.
        expr=age.max("job", "loop") > durations.seconds(thresholds.stalled_after),
        severity=PAGE,
        summary="A running loop makes no progress.",
        description=(
            "A process of job {{ $labels.job }} finished its last step of loop "
            "{{ $labels.loop }} {{ $value | humanizeDuration }} ago."
        ),
        labels=(("slo", STALLED_SLO),),
    )


def _compile_stuck(thresholds: Thresholds) -> Alert:
    oldest = gauge(catalog.COMPILE_OLDEST_SECONDS).max(*_PROCESS)
    return Alert(
        name="JaxmonCompileStuck",
        expr=oldest > durations.seconds(thresholds.stuck_after),
        severity=TICKET,
        summary="A compile does not come to an end.",
        description=(
            "A process of job {{ $labels.job }} on {{ $labels.instance }} "
            "{{ with $labels.worker }}(worker {{ . }}) {{ end }}has been compiling one "
            "program for {{ $value | humanizeDuration }}."
        ),
    )


def _gpu_lost(thresholds: Thresholds) -> Alert:
    return Alert(
        name="JaxmonGpuLost",
        expr=gauge(catalog.ACCELERATOR_UP).min("job", "instance", "uuid").equals(0),
        for_=thresholds.gpu_lost_for,
        severity=PAGE,
        summary="A GPU does not answer its driver.",
        description=(
            "GPU {{ $labels.uuid }} of {{ $labels.instance }} is lost; what runs on it "
            "fails or hangs."
        ),
    )


def _gpu_xid(thresholds: Thresholds) -> Alert:
    window = thresholds.xid_window
    critical = promql.re("xid", "|".join(catalog.CRITICAL_XIDS))
    errors = counter(catalog.GPU_XID_ERRORS, critical)
    return Alert(
        name="JaxmonGpuXid",
        expr=errors.rise(window).sum("job", "instance", "uuid", "xid") > 0,
        severity=TICKET,
        summary="A GPU reported a critical error.",
        description=(
            "GPU {{ $labels.uuid }} of {{ $labels.instance }} reported Xid "
            f"{{{{ $labels.xid }}}} {{{{ $value | humanize }}}} times within {window}."
        ),
    )


def _gpu_ecc_errors(thresholds: Thresholds) -> Alert:
    window, by = thresholds.ecc_window, ("job", "instance", "uuid")
    # The aggregate counts them once more, and starts at what the GPU has lived through.
    volatile = (eq("severity", "uncorrected"), eq("scope", "volatile"))
    errors = counter(catalog.GPU_ECC_ERRORS, *volatile).increase(window).sum(*by) > 0
    failed = gauge(catalog.GPU_ROW_REMAP_FAILURE).max(*by) > 0
    return Alert(
        name="JaxmonGpuEccErrors",
        expr=errors.or_(failed),
        severity=TICKET,
        summary="The memory of a GPU is damaged.",
        description=(
            "GPU {{ $labels.uuid }} of {{ $labels.instance }} had memory errors that "
            f"could not be corrected within {window}, or a bad row of its memory could "
            "not be replaced."
        ),
    )


def _gpu_throttled(thresholds: Thresholds) -> Alert:
    window = thresholds.throttled_window
    # Its power limit holds a busy GPU down all day: that is what the limit is for.
    undue = promql.re("reason", "|".join(catalog.UNDUE_THROTTLING))
    share = counter(catalog.GPU_THROTTLE_SECONDS, undue).rate(window)
    return Alert(
        name="JaxmonGpuThrottled",
        expr=share.max("job", "instance", "uuid") > thresholds.throttled,
        severity=TICKET,
        summary="A GPU is held down by heat or by its board.",
        description=(
            "The clock of GPU {{ $labels.uuid }} of {{ $labels.instance }} was held "
            "down for {{ $value | humanizePercentage }} of the last "
            f"{window}, by more than its power limit."
        ),
    )


def _tpu_runtime_down(thresholds: Thresholds) -> Alert:
    by = ("job", "instance")
    # Idle chips have no runtime: only beside a program that uses them is it missing.
    used = gauge(catalog.RUNTIME_INFO, eq("platform", "tpu")).max(*by)
    return Alert(
        name="JaxmonTpuRuntimeDown",
        expr=gauge(catalog.TPU_RUNTIME_UP).max(*by).equals(0).and_(used, *by),
        for_=thresholds.tpu_runtime_down_for,
        severity=TICKET,
        summary="A program uses TPUs whose runtime tells nothing.",
        description=(
            "A program of job {{ $labels.job }} on {{ $labels.instance }} uses TPUs, "
            "and no runtime answers there; what the chips do cannot be seen."
        ),
    )


def _target_down(thresholds: Thresholds, day: str) -> Alert:
    # Prometheus may scrape more than jaxmon: only jobs that had its metrics count.
    ours = gauge_over(catalog.BUILD_INFO, "last", day).max("job")
    return Alert(
        name="JaxmonTargetDown",
        expr=promql.up().equals(0).and_(ours, "job"),
        for_=thresholds.target_down_for,
        severity=TICKET,
        summary="Prometheus cannot scrape a target.",
        description=(
            "Target {{ $labels.instance }} of job {{ $labels.job }} does not answer; "
            "nothing about it can be seen or alerted on."
        ),
    )


def _service_vanished(thresholds: Thresholds, hour: str) -> Alert:
    before = gauge_over(catalog.REQUESTS_IN_PROGRESS, "last", hour).max("job")
    return Alert(
        name="JaxmonServiceVanished",
        expr=before.unless(gauge(catalog.REQUESTS_IN_PROGRESS).max("job")),
        for_=thresholds.vanished_for,
        severity=PAGE,
        summary="No process of a service reports any more.",
        description=(
            "Job {{ $labels.job }} served requests within the last hour, and now none "
            "of its processes can be seen. Alerts on its objectives have ended with it."
        ),
    )


def _collector_down(thresholds: Thresholds, day: str) -> Alert:
    by = ("job", "instance", "collector")
    # A host without a GPU has a collector that never worked: that is no failure.
    worked = gauge_over(catalog.COLLECTOR_SUCCESS, "max", day).max(*by)
    works = gauge(catalog.COLLECTOR_SUCCESS).max(*by)
    return Alert(
        name="JaxmonCollectorDown",
        expr=works.equals(0).and_(worked.equals(1)),
        for_=thresholds.collector_down_for,
        severity=TICKET,
        summary="A collector of the sidecar fails.",
        description=(
            "Collector {{ $labels.collector }} of {{ $labels.instance }} worked within "
            "the last day and fails now; its figures are missing."
        ),
    )


def _agent_hook_inactive(thresholds: Thresholds) -> Alert:
    return Alert(
        name="JaxmonAgentHookInactive",
        expr=gauge(catalog.HOOK_ACTIVE).min("job", "hook").equals(0),
        for_=thresholds.hook_inactive_for,
        severity=TICKET,
        summary="A hook of the agent does not observe.",
        description=(
            "Hook {{ $labels.hook }} is inactive in a process of job "
            "{{ $labels.job }}; the metrics that it feeds are incomplete."
        ),
    )
