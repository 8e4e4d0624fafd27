"""Cases of alerts on what cannot be seen."""

from tests.alerts.promtool import Case, Firing, page, ticket


UP = 'up{job="web",instance="a:1"}'
BUILD = 'jaxmon_build_info{job="web",instance="a:1",version="1"}'
REQUESTS = 'jaxmon_requests_in_progress{job="web",instance="a:1",route="/gen"}'
AGENT = 'jaxmon_agent_up{{job="train",instance="{}",worker="{}"}}'
TIMEOUTS = (
    'jaxmon_collector_errors_total{job="train",instance="a:1",collector="agents",'
    'reason="agent_timeout"}'
)
COLLECTOR = 'jaxmon_collector_success{{job="gpus",instance="a:1",collector="{}"}}'
WEB_CONFIG = 'jaxmon_web_config_success{{job="gpus",instance="{}"}}'
EXPORTS = (
    'jaxmon_otlp_exports_total{{job="train",instance="{}",worker="0",'
    'signal="metrics",outcome="{}"}}'
)
SPANS = 'jaxmon_dropped_total{{job="web",instance="{}",what="{}"}}'
HOOK = 'jaxmon_hook_active{job="train",instance="a:1",hook="compiles"}'

STARTED = 'process_start_time_seconds{job="web",instance="a:1",worker="0"}'
UPTIME = 'jaxmon_uptime_seconds{job="web",instance="a:1",worker="0"}'
RUNTIME = 'jaxmon_runtime_info{job="web",instance="a:1",worker="0"}'
SERVED = (
    'jaxmon_requests_total{job="web",instance="a:1",route="/gen",outcome="success",'
    'start="warm"}'
)

VANISHED = page(
    "Job web served requests within the last hour, and now none of its processes "
    "is reporting, so errors and latency are not visible.",
    job="web",
    symptom="service_vanished",
)

CASES = {
    "target down": Case(
        "JaxmonTargetDown",
        {
            UP: "1+0x5 0+0x15 1+0x10",
            BUILD: "1+0x5 stale _x16 1+0x10",
            'up{job="other",instance="b:1"}': "0+0x40",
        },
        quiet=("5m", "10m", "22m"),
        firing={
            "11m": ticket(
                "Target a:1 of job web does not respond; there are no metrics or "
                "alerts for it.",
                "job=web instance=a:1",
            )
        },
    ),
    "service vanished": Case(
        "JaxmonServiceVanished/service_vanished",
        {UP: "1+0x100", REQUESTS: "3+0x10 stale _x90"},
        quiet=("10m", "15m", "80m"),
        firing={"16m": VANISHED},
    ),
    "service vanished with its sidecar, between two requests": Case(
        "JaxmonServiceVanished/service_vanished",
        {
            UP: "1+0x10 0+0x90",
            REQUESTS: "0+0x10 stale _x90",
            SERVED: "7+1x10 stale _x90",
        },
        quiet=("10m", "15m", "80m"),
        firing={"16m": VANISHED, "60m": VANISHED},
    ),
    "service vanished with its host, whose processes are evicted": Case(
        "JaxmonServiceVanished/service_vanished",
        {UP: "1+0x10 0+0x7 stale _x90", REQUESTS: "3+0x10 stale _x90"},
        quiet=("10m", "15m", "80m"),
        firing={"16m": VANISHED, "18m": VANISHED, "40m": VANISHED},
    ),
    "service removed while it had requests": Case(
        "JaxmonServiceVanished/service_vanished",
        {
            # Ends a scrape before it is forgotten.
            UP: "1+0x10 0 stale _x90",
            REQUESTS: "3+0x10 stale _x90",
            SERVED: "7+1x10 stale _x90",
        },
        quiet=("10m", "15m", "80m"),
        firing={"20m": VANISHED},
    ),
    "service removed after its requests had gone to another": Case(
        "JaxmonServiceVanished/service_vanished",
        {
            UP: "1+0x10 0 stale _x90",
            REQUESTS: "3+0x10 stale _x90",
            SERVED: "7+1x10 stale _x90",
            REQUESTS.replace('"web"', '"green"'): "3+0x90",
        },
        quiet=("10m", "20m", "60m"),
    ),
    "service removed after its last request": Case(
        "JaxmonServiceVanished/service_vanished",
        {
            UP: "1+0x30 stale _x90",
            REQUESTS: "3+0x10 0+0x20 stale _x90",
            SERVED: "7+1x10 17+0x20 stale _x90",
        },
        quiet=("30m", "40m", "60m"),
    ),
    "requests that no longer come": Case(
        "JaxmonServiceVanished/traffic_stopped",
        {REQUESTS: "0+0x120", SERVED: "0+100x30 3000+0x60 3100+100x30"},
        quiet=("30m", "40m", "110m"),
        firing={
            at: page(
                "Job web got many requests, and now has got none for more than 10m: "
                "they no longer reach it, or no one asks.",
                job="web",
                symptom="traffic_stopped",
            )
            for at in ("52m", "85m")
        },
    ),
    "requests that become fewer": Case(
        "JaxmonServiceVanished/traffic_stopped",
        {REQUESTS: "0+0x120", SERVED: "0+100x30 3000+1x60"},
        quiet=("30m", "50m", "85m"),
    ),
    "a bucket that relabelling drops": Case(
        "JaxmonMonitoringDegraded/bucket",
        {
            f'jaxmon_request_seconds_{part}{{job="{job}",instance="a:1",route="/gen",'
            f'outcome="success",start="warm"{le}}}': "0+10x60"
            for job, part, le in (
                ("web", "count", ""),
                ("web", "bucket", ',le="0.3"'),
                ("whole", "count", ""),
                ("whole", "bucket", ',le="0.2"'),
            )
        },
        quiet=("5m",),
        firing={
            "20m": ticket(
                "Job web exports jaxmon_request_seconds without the bucket 0.2, by "
                "which 'Warm requests are fast' is judged.",
                "job=web route=/gen le=0.2 slo=warm-latency symptom=bucket",
            )
        },
    ),
    "alerts arrive": Case(
        "JaxmonWatchdog",
        {UP: "1+0x10"},
        firing={
            "5m": [
                Firing(
                    {"severity": "info", "job": "prometheus"},
                    "Rules yield 1, and alerts reach Alertmanager.",
                )
            ]
        },
    ),
    "a service that had no request for long ends": Case(
        "JaxmonServiceVanished/service_vanished",
        {
            UP: "1+0x200",
            REQUESTS: "1+0x10 0+0x90 stale _x90",
            SERVED: "7+1x10 17+0x90 stale _x90",
        },
        quiet=tuple(f"{minute}m" for minute in range(10, 200, 5)),
    ),
    "a service is deployed anew in a quiet hour": Case(
        "JaxmonServiceVanished/service_vanished",
        {
            UP: "1+0x200",
            # Its routes are not known before the first request.
            REQUESTS: "3+0x10 stale _x90",
            STARTED: "0+0x10 660+0x190",
            UPTIME: "0+60x10 0+60x190",
            RUNTIME: "1+0x200",
        },
        quiet=tuple(f"{minute}m" for minute in range(10, 200, 5)),
    ),
    "a service that crashes at each start": Case(
        "JaxmonServiceVanished/service_vanished",
        {
            UP: "1+0x100",
            REQUESTS: "3+0x10 stale _x90",
            STARTED: "0+0x10 " + " ".join(str(660 + 60 * one) for one in range(60)),
            UPTIME: "0+60x10 1+0x90",
            RUNTIME: "1+0x100",
        },
        quiet=("15m",),
        firing={"25m": VANISHED},
    ),
    "one process of two vanished": Case(
        "JaxmonServiceVanished/service_vanished",
        {
            UP: "1+0x100",
            REQUESTS: "3+0x10 stale _x90",
            REQUESTS.replace("a:1", "b:1"): "0+0x100",
        },
        quiet=("15m", "30m"),
    ),
    "collector down": Case(
        "JaxmonMonitoringDegraded",
        {
            COLLECTOR.format("host"): "1+0x5 0+0x20 1+0x10",
            COLLECTOR.format("nvml"): "0+0x40",
            COLLECTOR.format("nccl"): "1+0x5 0+0x40",
        },
        quiet=("5m", "15m", "27m"),
        firing={
            "16m": ticket(
                "Collector host of a:1 worked within the last day but is failing "
                "now; its metrics are missing.",
                "job=gpus instance=a:1 collector=host symptom=collector_down",
            )
        },
    ),
    "a web configuration that cannot be used": Case(
        "JaxmonMonitoringDegraded",
        {
            WEB_CONFIG.format("a:1"): "1+0x5 0+0x20 1+0x10",
            WEB_CONFIG.format("b:1"): "1+0x40",
            # Half of a renewal: the certificate came before its key.
            WEB_CONFIG.format("c:1"): "1+0x5 0+0x2 1+0x30",
        },
        quiet=("5m", "15m", "27m"),
        firing={
            "16m": ticket(
                "The latest web configuration or certificates of a:1 are invalid. "
                "The previous ones stay in effect, but the sidecar will fail to "
                "restart.",
                "job=gpus instance=a:1 symptom=web_config",
            )
        },
    ),
    "an agent that keeps the sidecar waiting": Case(
        "JaxmonAgentSilent",
        {
            AGENT.format("a:1", 0): "1+0x5 0+0x20 1+0x20",
            AGENT.format("a:1", 1): "1+0x60",
            TIMEOUTS: "0+0x5 20+20x19 400+0x30",
            # Killed some time ago: its socket still lies there.
            AGENT.format("b:1", 0): "0+0x60",
            TIMEOUTS.replace("a:1", "b:1"): "0+0x60",
        },
        quiet=("5m", "10m", "27m"),
        firing={
            "11m": ticket(
                "Worker 0 of job train on a:1 accepts connections but does not "
                "respond: it is stopped, or something holds the GIL. Its metrics, "
                "and the alerts based on them, are gone.",
                "job=train instance=a:1 worker=0",
            )
        },
    ),
    "agent hook inactive": Case(
        "JaxmonMonitoringDegraded",
        {HOOK: "1+0x5 0+0x20 1+0x10", HOOK.replace("a:1", "b:1"): "1+0x40"},
        quiet=("5m", "15m", "27m"),
        firing={
            "16m": ticket(
                "Hook compiles is inactive in a process of job train; its metrics "
                "are incomplete.",
                "job=train hook=compiles symptom=hook_inactive",
            )
        },
    ),
    "no export arrives": Case(
        "JaxmonMonitoringDegraded",
        {
            EXPORTS.format("a:1", "success"): "0+1x10 10+0x50 11+1x20",
            EXPORTS.format("a:1", "failure"): "0+0x10 0+1x50 50+0x20",
            # A receiver that refuses now and then loses nothing.
            EXPORTS.format("b:1", "success"): "0+1x80",
            EXPORTS.format("b:1", "failure"): "0+1x80",
            # It pushes seldom, and what it pushes arrives.
            EXPORTS.format("c:1", "success"): "3+0x80",
            EXPORTS.format("c:1", "failure"): "2+0x80",
        },
        quiet=("10m", "20m", "34m", "79m"),
        firing={
            "40m": ticket(
                "No export of metrics from a:1 (worker 0) of job train by OTLP "
                "succeeds; 10 failed within 10m.",
                "job=train instance=a:1 worker=0 signal=metrics symptom=export",
            )
        },
    ),
    "spans are dropped": Case(
        "JaxmonMonitoringDegraded",
        {
            SPANS.format("a:1", "span"): "0+0x10 0+20x50 1000+0x30",
            # Once, while the receiver was restarted.
            SPANS.format("b:1", "span"): "0+0x10 2000+0x80",
            SPANS.format("c:1", "sample"): "0+200x80",
        },
        quiet=("10m", "20m", "25m", "85m"),
        firing={
            "40m": ticket(
                "a:1 of job web dropped 200 spans within 10m; their traces are "
                "incomplete or missing.",
                "job=web instance=a:1 symptom=spans",
            )
        },
    ),
}
