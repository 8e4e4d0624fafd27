"""Memory alerts: exhausted, nearly exhausted, growing."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.artifacts import promql
from jaxmon.artifacts.alerts.model import PROCESS, Alert
from jaxmon.artifacts.promql import counter, eq, gauge, gauge_over
from jaxmon.artifacts.slo import Thresholds, durations
from jaxmon.artifacts.slo.thresholds import TICKET


def out_of_memory(thresholds: Thresholds) -> Alert:
    """Alert on an out-of-memory error."""
    window = thresholds.oom_window
    failures = counter(catalog.ERRORS, eq("kind", "oom"))
    return Alert(
        name="JaxmonOutOfMemory",
        # Often the first thing that a function does: its series is born with it.
        expr=failures.mishaps(window).sum("job", "function") > 0,
        severity=TICKET,
        summary="A device ran out of memory.",
        description=(
            "Function {{ $labels.function }} of job {{ $labels.job }} ran out of "
            f"device memory {{{{ $value | humanize }}}} times in {window}."
        ),
    )


def device_memory_high(thresholds: Thresholds) -> Alert:
    """Alert on a device whose memory is nearly full."""
    by = (*PROCESS, "device")
    used = gauge(catalog.DEVICE_MEMORY_BYTES, eq("kind", "in_use")).max(*by)
    limit = gauge(catalog.DEVICE_MEMORY_BYTES, eq("kind", "limit")).max(*by)
    return Alert(
        name="JaxmonDeviceMemoryHigh",
        expr=promql.ratio(used, limit) > thresholds.device_memory,
        for_=thresholds.device_memory_for,
        severity=TICKET,
        summary="Device memory is nearly full.",
        description=(
            "{{ $value | humanizePercentage }} of the memory job "
            "{{ $labels.job }} may allocate on device {{ $labels.device }} of "
            "{{ $labels.instance }} {{ with $labels.worker }}(worker {{ . }}) "
            "{{ end }}is in use."
        ),
    )


def memory_leak(thresholds: Thresholds) -> Alert:
    """Alert on live arrays that grow steadily."""
    by = (*PROCESS, "device")
    return Alert(
        name="JaxmonMemoryLeak",
        expr=gauge(catalog.LEAK_GROWTH_BYTES).max(*by) > 0,
        # The agent has seen a window of growth already; a cache that fills ends.
        for_=thresholds.leak_for,
        severity=TICKET,
        summary="A process is leaking live arrays.",
        description=(
            "A process of job {{ $labels.job }} on {{ $labels.instance }} "
            "{{ with $labels.worker }}(worker {{ . }}) {{ end }}keeps "
            "accumulating arrays on device {{ $labels.device }}: "
            "{{ $value | humanize1024 }}B in the agent's last window."
        ),
    )


def host_memory_growth(thresholds: Thresholds) -> Alert:
    """Alert on a process whose memory grows steadily."""
    window = thresholds.host_memory_window
    rss = catalog.PROCESS_RESIDENT_MEMORY_BYTES
    growth = promql.gauge_slope(rss, window) * durations.seconds(window)
    mean = gauge_over(rss, "avg", window)
    age = promql.time() - gauge(catalog.PROCESS_START_TIME_SECONDS).max(*PROCESS)
    grown = (growth / mean).max(*PROCESS) > thresholds.host_memory_growth
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
        summary="A process's memory keeps growing.",
        description=(
            "A process of job {{ $labels.job }} on {{ $labels.instance }} "
            "{{ with $labels.worker }}(worker {{ . }}) {{ end }}grew by "
            f"{{{{ $value | humanizePercentage }}}} in the last {window}, and in the "
            f"{window} before."
        ),
    )
