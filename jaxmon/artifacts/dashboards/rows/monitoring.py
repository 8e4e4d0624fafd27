"""The monitoring itself: targets, collectors, hooks."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.artifacts.dashboards import hardware
from jaxmon.artifacts.dashboards import queries as q
from jaxmon.artifacts.dashboards.model import Mapping, Panel, Row, Target
from jaxmon.artifacts.promql import counter, gauge, histogram


_IN_FORCE = (Mapping("0", "failed", "red"), Mapping("1", "in force", "green"))
_HOOKS = (Mapping("0", "inactive", "red"), Mapping("1", "active", "green"))


def oncall() -> Row:
    """Return whether the other figures can be trusted."""
    hooks = gauge(catalog.HOOK_ACTIVE, *q.PROCESS).min("hook")
    collectors = hardware.host(catalog.COLLECTOR_SUCCESS)
    age = hardware.host(catalog.COLLECTOR_AGE_SECONDS)
    failed = counter(catalog.INTERNAL_ERRORS, *q.PROCESS)
    by = ("instance", "collector")
    named = "{{instance}} {{collector}}"
    return Row(
        9,
        "Can these figures be trusted?",
        (
            Panel(
                id=801,
                title="Targets",
                kind="state-timeline",
                text="Whether Prometheus could scrape each agent or sidecar.",
                targets=(Target(hardware.targets(), "{{job}} {{instance}}"),),
                width=8,
                mappings=q.UP,
                thresholds=q.below(1),
                alerts=("JaxmonTargetDown",),
            ),
            Panel(
                id=802,
                title="Collectors",
                kind="state-timeline",
                text="Whether the last poll of each collector worked. nvml is down on "
                "a host without NVIDIA driver, which is no fault.",
                targets=(Target(collectors.min(*by), named),),
                width=8,
                mappings=q.UP,
                thresholds=q.below(1),
                alerts=("JaxmonCollectorDown",),
            ),
            Panel(
                id=803,
                title="Age of collected figures",
                kind="timeseries",
                text="How old what a sidecar serves is. It grows when a driver or an "
                "agent hangs.",
                targets=(Target(age.max(*by), named),),
                width=8,
                alerts=("JaxmonCollectorDown",),
            ),
            Panel(
                id=804,
                title="Hooks",
                kind="state-timeline",
                text="Whether each of the agent's hooks observes, in every process. "
                "Without one, the figures that it feeds are missing.",
                targets=(Target(hooks, "{{hook}}"),),
                width=8,
                mappings=_HOOKS,
                thresholds=q.below(1),
                alerts=("JaxmonAgentHookInactive",),
            ),
            Panel(
                id=805,
                title="Internal errors",
                kind="timeseries",
                text="Failures of jaxmon's own code, contained. Please report them.",
                targets=(Target(failed.mishaps().sum("site"), "{{site}}"),),
                width=8,
                no_value="None",
            ),
            Panel(
                id=806,
                title="Agents that answer their sidecar",
                kind="state-timeline",
                text="Whether the process in each slot answers. Down: it was killed, "
                "or hangs; the alert knows which.",
                targets=(
                    Target(
                        gauge(catalog.AGENT_UP, *q.PROCESS), "{{instance}} {{worker}}"
                    ),
                ),
                width=8,
                mappings=q.UP,
                thresholds=q.below(1),
                alerts=("JaxmonAgentSilent",),
            ),
        ),
        collapsed=True,
    )


def debug() -> Row:
    """Return what jaxmon itself does and costs, and the versions that it sees."""
    panels = (*_agents(), *_sidecars(), *_versions())
    return Row(20, "jaxmon and versions", panels, collapsed=True)


def _agents() -> tuple[Panel, ...]:
    hooks = gauge(catalog.HOOK_ACTIVE, *q.PROCESS).min(*q.BY_PROCESS, "hook")
    scrape = histogram(catalog.SCRAPE_SECONDS, *q.PROCESS).quantile(0.95, *q.BY_PROCESS)
    overflow = counter(catalog.LABEL_OVERFLOW, *q.PROCESS).rate().sum("label")
    dropped = counter(catalog.DROPPED, *q.PROCESS).rate().sum("what")
    failed = counter(catalog.INTERNAL_ERRORS, *q.PROCESS).mishaps()
    return (
        Panel(
            id=2001,
            title="Hooks by process",
            kind="state-timeline",
            text="Which hook of which agent observes. An inactive one could not "
            "attach to this JAX, or switched itself off after failures.",
            targets=(Target(hooks, f"{q.NAMED_PROCESS} {{{{hook}}}}"),),
            mappings=_HOOKS,
            thresholds=q.below(1),
            alerts=("JaxmonAgentHookInactive",),
        ),
        Panel(
            id=2002,
            title="Time to make a page",
            kind="timeseries",
            text="How long 95 % of the scrapes of each agent or sidecar take.",
            targets=(Target(q.known(scrape), q.NAMED_PROCESS),),
        ),
        Panel(
            id=2003,
            title="Label overflow",
            kind="timeseries",
            text="Look-ups per minute that ended in 'other'. Raise max_functions, or "
            "stop making new functions.",
            targets=(Target(q.per_minute(overflow), "{{label}}"),),
            width=8,
        ),
        Panel(
            id=2004,
            title="Refused work",
            kind="timeseries",
            text="What jaxmon refused to stay within its bounds.",
            targets=(Target(q.per_minute(dropped), "{{what}}"),),
            width=8,
        ),
        Panel(
            id=2005,
            title="Internal errors by process",
            kind="timeseries",
            text="Contained failures of jaxmon's own code, by process and place.",
            targets=(
                Target(
                    failed.sum(*q.BY_PROCESS, "site"),
                    f"{q.NAMED_PROCESS} {{{{site}}}}",
                ),
            ),
            width=8,
            no_value="None",
        ),
    )


def _sidecars() -> tuple[Panel, ...]:
    by = ("instance", "collector")
    named = "{{instance}} {{collector}}"
    took = hardware.host(catalog.COLLECTOR_DURATION_SECONDS)
    age = hardware.host(catalog.COLLECTOR_AGE_SECONDS)
    errors = hardware.host_rate(catalog.COLLECTOR_ERRORS).sum(*by, "reason")
    config = hardware.host(catalog.WEB_CONFIG_SUCCESS)
    return (
        Panel(
            id=2006,
            title="Duration of collection",
            kind="timeseries",
            text="How long the last poll of each collector took. A driver that slows "
            "down shows here before it hangs.",
            targets=(Target(took.max(*by), named),),
            width=8,
        ),
        Panel(
            id=2007,
            title="Age of a collector's figures",
            kind="timeseries",
            text="How old what each collector serves is.",
            targets=(Target(age.max(*by), named),),
            width=8,
            alerts=("JaxmonCollectorDown",),
        ),
        Panel(
            id=2008,
            title="Collector errors by reason",
            kind="timeseries",
            text="Failures of collectors. The sidecar's log has the message.",
            targets=(Target(q.per_minute(errors), f"{named} {{{{reason}}}}"),),
            width=8,
            alerts=("JaxmonCollectorDown",),
        ),
        Panel(
            id=2011,
            title="Web configuration",
            kind="state-timeline",
            text="Whether what a sidecar's web configuration and its certificates say "
            "is in force. After a change that cannot be used, what was stays.",
            targets=(Target(config.max("instance"), "{{instance}}"),),
            width=24,
            mappings=_IN_FORCE,
            thresholds=q.below(1),
            alerts=("JaxmonWebConfigFailed",),
            no_value="No sidecar has one",
        ),
    )


def _versions() -> tuple[Panel, ...]:
    runtime = ("job", "jax", "jaxlib", "python", "platform", "platform_version")
    running = gauge(catalog.RUNTIME_INFO, *q.PROCESS).count(*runtime)
    ours = gauge(catalog.BUILD_INFO, *q.PROCESS).count("job", "version")
    return (
        Panel(
            id=2009,
            title="Versions of JAX and its platform",
            kind="table",
            text="Processes by version. More than one line for a service: versions "
            "are mixed, and results or speed may differ from host to host.",
            targets=(Target(running, "Processes"),),
            width=16,
            labels=runtime,
        ),
        Panel(
            id=2010,
            title="Versions of jaxmon",
            kind="table",
            text="Agents and sidecars by version.",
            targets=(Target(ours, "Processes"),),
            width=8,
            labels=("job", "version"),
        ),
    )
