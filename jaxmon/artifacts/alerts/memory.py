"""Memory alerts: exhausted, nearly exhausted, growing."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog, promql
from jaxmon.artifacts import events
from jaxmon.artifacts.alerts.model import COUNT, PROCESS, Alert
from jaxmon.artifacts.slo.severity import PAGE, TICKET
from jaxmon.formats import durations
from jaxmon.limits import Limits
from jaxmon.promql import eq, gauge, gauge_over


def out_of_memory(limits: Limits) -> Iterator[Alert]:
    """
    Yield a ticket for out-of-memory errors, and a page if most processes of a job have
    them: they will not go away by themselves.
    """
    window = limits.oom_window
    failures = events.ERRORS.within(window, eq("kind", "oom"))
    failing = (failures.sum(*PROCESS) > 0).count("job")
    processes = gauge(catalog.RUNTIME_INFO).max(*PROCESS).count("job")
    # Of pods that are replaced, several fail for each that runs.
    most = promql.call("clamp_max", promql.ratio(failing, processes), 1)
    widespread = most >= limits.oom_share
    yield Alert(
        name="JaxmonOutOfMemory",
        expr=widespread.and_(failing > 1),
        severity=PAGE,
        description="Most processes of a job run out of device memory.",
        summary=(
            "{{ $value | humanizePercentage }} of the processes of job "
            f"{{{{ $labels.job }}}} ran out of device memory in the last {window}."
        ),
    )
    yield Alert(
        name="JaxmonOutOfMemory",
        expr=failures.sum("job", "function") > 0,
        severity=TICKET,
        description="A device ran out of memory.",
        summary=(
            "Function {{ $labels.function }} of job {{ $labels.job }} ran out of "
            f"device memory {COUNT} times in {window}."
        ),
    )


def device_memory_high(limits: Limits) -> Alert:
    """Alert on a device whose memory is nearly full."""
    by = (*PROCESS, "device")
    used = gauge(catalog.DEVICE_MEMORY_BYTES, eq("kind", "in_use")).max(*by)
    limit = gauge(catalog.DEVICE_MEMORY_BYTES, eq("kind", "limit")).max(*by)
    return Alert(
        name="JaxmonDeviceMemoryHigh",
        expr=promql.ratio(used, limit) > limits.device_memory,
        for_=limits.device_memory_for,
        severity=TICKET,
        description="Device memory is nearly full.",
        summary=(
            "{{ $value | humanizePercentage }} of the memory job "
            "{{ $labels.job }} may allocate on device {{ $labels.device }} of "
            "{{ $labels.instance }} {{ with $labels.worker }}(worker {{ . }}) "
            "{{ end }}is in use."
        ),
    )


def memory_leak(limits: Limits) -> Alert:
    """Alert on live arrays that grow steadily."""
    by = (*PROCESS, "device")
    return Alert(
        name="JaxmonMemoryLeak",
        expr=gauge(catalog.LEAK_GROWTH_BYTES).max(*by) > 0,
        # The agent has seen a window of growth already; a cache that fills ends.
        for_=limits.leak_for,
        severity=TICKET,
        description="A process is leaking live arrays.",
        summary=(
            "A process of job {{ $labels.job }} on {{ $labels.instance }} "
            "{{ with $labels.worker }}(worker {{ . }}) {{ end }}keeps "
            "accumulating arrays on device {{ $labels.device }}: "
            "{{ $value | humanize1024 }}B in the agent's last window."
        ),
    )


def host_memory_growth(limits: Limits) -> Alert:
    """Alert on a process whose memory grows steadily."""
    window = limits.host_memory_window
    rss = catalog.PROCESS_RESIDENT_MEMORY_BYTES
    growth = promql.gauge_slope(rss, window) * durations.seconds(window)
    mean = gauge_over(rss, "avg", window)
    age = gauge(catalog.UPTIME_SECONDS).max(*PROCESS)
    grown = (growth / mean).max(*PROCESS) > limits.host_memory_growth
    return Alert(
        name="JaxmonHostMemoryGrowth",
        # A program that starts grows; that must have left the window. The same Many
        # other programs export metrics of that name to Prometheus.
        expr=grown.and_(age > 2 * durations.seconds(window)).and_(
            gauge(catalog.BUILD_INFO), *PROCESS
        ),
        # A step, such as loading more data, is within the window for no longer.
        for_=window,
        severity=TICKET,
        description="A process's memory keeps growing.",
        summary=(
            "A process of job {{ $labels.job }} on {{ $labels.instance }} "
            "{{ with $labels.worker }}(worker {{ . }}) {{ end }}grew by "
            f"{{{{ $value | humanizePercentage }}}} in the last {window}, and in the "
            f"{window} before."
        ),
    )
