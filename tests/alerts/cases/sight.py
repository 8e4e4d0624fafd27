"""
Cases of alerts on what cannot be seen.
"""

from __future__ import annotations

from tests.alerts.promtool import Case, page, ticket


UP = 'up{job="web",instance="a:1"}'
BUILD = 'jaxmon_build_info{job="web",instance="a:1",version="1"}'
REQUESTS = 'jaxmon_requests_in_progress{job="web",instance="a:1",route="/gen"}'
AGENT = 'jaxmon_agent_up{{job="train",instance="{}",worker="{}"}}'
TIMEOUTS = (
    'jaxmon_collector_errors_total{job="train",instance="a:1",collector="agents",'
    'reason="agent_timeout"}'
)
COLLECTOR = 'jaxmon_collector_success{{job="gpus",instance="a:1",collector="{}"}}'
HOOK = 'jaxmon_hook_active{job="train",instance="a:1",hook="compiles"}'

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
                "Target a:1 of job web does not answer; nothing about it can be seen "
                "or alerted on.",
                job="web",
                instance="a:1",
            )
        },
    ),
    "service vanished": Case(
        "JaxmonServiceVanished",
        {REQUESTS: "3+0x10 stale _x90"},
        quiet=("10m", "15m", "80m"),
        firing={
            "16m": page(
                "Job web served requests within the last hour, and now none of its "
                "processes can be seen. Alerts on its objectives have ended with it.",
                job="web",
            )
        },
    ),
    "one process of two vanished": Case(
        "JaxmonServiceVanished",
        {
            REQUESTS: "3+0x10 stale _x90",
            REQUESTS.replace("a:1", "b:1"): "0+0x100",
        },
        quiet=("15m", "30m"),
    ),
    "collector down": Case(
        "JaxmonCollectorDown",
        {
            COLLECTOR.format("host"): "1+0x5 0+0x20 1+0x10",
            COLLECTOR.format("nvml"): "0+0x40",
        },
        quiet=("5m", "15m", "27m"),
        firing={
            "16m": ticket(
                "Collector host of a:1 worked within the last day and fails now; its "
                "figures are missing.",
                job="gpus",
                instance="a:1",
                collector="host",
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
                "Worker 0 of job train on a:1 takes connections and answers none: it "
                "is stopped, or holds Python's interpreter lock. Its metrics are gone, "
                "and alerts on its steps with them.",
                job="train",
                instance="a:1",
                worker="0",
            )
        },
    ),
    "agent hook inactive": Case(
        "JaxmonAgentHookInactive",
        {HOOK: "1+0x5 0+0x20 1+0x10", HOOK.replace("a:1", "b:1"): "1+0x40"},
        quiet=("5m", "15m", "27m"),
        firing={
            "16m": ticket(
                "Hook compiles is inactive in a process of job train; the metrics that "
                "it feeds are incomplete.",
                job="train",
                hook="compiles",
            )
        },
    ),
}
