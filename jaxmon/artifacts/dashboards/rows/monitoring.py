"""The monitoring itself: targets, collectors, hooks."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.artifacts.dashboards import hardware
from jaxmon.artifacts.dashboards import queries as q
from jaxmon.artifacts.dashboards.kinds import line, row, states, table, timeseries
from jaxmon.artifacts.dashboards.model import Line, Mapping, Row, Target
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
    return row(
        9,
        "Can these figures be trusted?",
        line(
            states(
                801,
                "Targets",
                Target(hardware.targets(), "{{job}} {{instance}}"),
                text="Whether Prometheus could scrape each agent or sidecar.",
                mappings=q.UP,
                thresholds=q.below(1),
                alerts=("JaxmonTargetDown",),
            ),
            states(
                802,
                "Collectors",
                Target(collectors.min(*by), named),
                text="Whether the last poll of each collector worked. nvml is down on "
                "a host without NVIDIA driver, which is no fault.",
                mappings=q.UP,
                thresholds=q.below(1),
                alerts=("JaxmonCollectorDown",),
            ),
            timeseries(
                803,
                "Age of collected figures",
                Target(age.max(*by), named),
                text="How old what a sidecar serves is. It grows when a driver or an "
                "agent hangs.",
                alerts=("JaxmonCollectorDown",),
            ),
        ),
        line(
            states(
                804,
                "Hooks",
                Target(hooks, "{{hook}}"),
                text="Whether each of the agent's hooks observes, in every process. "
                "Without one, the figures that it feeds are missing.",
                mappings=_HOOKS,
                thresholds=q.below(1),
                alerts=("JaxmonAgentHookInactive",),
            ),
            timeseries(
                805,
                "Internal errors",
                Target(failed.mishaps().sum("site"), "{{site}}"),
                text="Failures of jaxmon's own code, contained. Please report them.",
                no_value="None",
            ),
            states(
                806,
                "Agents that answer their sidecar",
                Target(gauge(catalog.AGENT_UP, *q.PROCESS), "{{instance}} {{worker}}"),
                text="Whether the process in each slot answers. Down: it was killed, "
                "or hangs; the alert knows which.",
                mappings=q.UP,
                thresholds=q.below(1),
                alerts=("JaxmonAgentSilent",),
            ),
        ),
        collapsed=True,
    )


def debug() -> Row:
    """Return what jaxmon itself does and costs, and the versions that it sees."""
    lines = (*_agents(), *_sidecars(), _versions())
    return row(20, "jaxmon and versions", *lines, collapsed=True)


def _agents() -> tuple[Line, ...]:
    hooks = gauge(catalog.HOOK_ACTIVE, *q.PROCESS).min(*q.BY_PROCESS, "hook")
    scrape = histogram(catalog.SCRAPE_SECONDS, *q.PROCESS).quantile(0.95, *q.BY_PROCESS)
    overflow = counter(catalog.LABEL_OVERFLOW, *q.PROCESS).rate().sum("label")
    dropped = counter(catalog.DROPPED, *q.PROCESS).rate().sum("what")
    failed = counter(catalog.INTERNAL_ERRORS, *q.PROCESS).mishaps()
    return (
        line(
            states(
                2001,
                "Hooks by process",
                Target(hooks, f"{q.NAMED_PROCESS} {{{{hook}}}}"),
                text="Which hook of which agent observes. An inactive one could not "
                "attach to this JAX, or switched itself off after failures.",
                mappings=_HOOKS,
                thresholds=q.below(1),
                alerts=("JaxmonAgentHookInactive",),
            ),
            timeseries(
                2002,
                "Time to make a page",
                Target(q.known(scrape), q.NAMED_PROCESS),
                text="How long 95 % of the scrapes of each agent or sidecar take.",
            ),
        ),
        line(
            timeseries(
                2003,
                "Label overflow",
                Target(q.per_minute(overflow), "{{label}}"),
                text="Look-ups per minute that ended in 'other'. Raise max_functions, "
                "or stop making new functions.",
            ),
            timeseries(
                2004,
                "Refused work",
                Target(q.per_minute(dropped), "{{what}}"),
                text="What jaxmon refused to stay within its bounds.",
            ),
            timeseries(
                2005,
                "Internal errors by process",
                Target(
                    failed.sum(*q.BY_PROCESS, "site"), f"{q.NAMED_PROCESS} {{{{site}}}}"
                ),
                text="Contained failures of jaxmon's own code, by process and place.",
                no_value="None",
            ),
        ),
    )


def _sidecars() -> tuple[Line, ...]:
    by = ("instance", "collector")
    named = "{{instance}} {{collector}}"
    took = hardware.host(catalog.COLLECTOR_DURATION_SECONDS)
    age = hardware.host(catalog.COLLECTOR_AGE_SECONDS)
    errors = hardware.host_rate(catalog.COLLECTOR_ERRORS).sum(*by, "reason")
    config = hardware.host(catalog.WEB_CONFIG_SUCCESS)
    return (
        line(
            timeseries(
                2006,
                "Duration of collection",
                Target(took.max(*by), named),
                text="How long the last poll of each collector took. A driver that "
                "slows down shows here before it hangs.",
            ),
            timeseries(
                2007,
                "Age of a collector's figures",
                Target(age.max(*by), named),
                text="How old what each collector serves is.",
                alerts=("JaxmonCollectorDown",),
            ),
            timeseries(
                2008,
                "Collector errors by reason",
                Target(q.per_minute(errors), f"{named} {{{{reason}}}}"),
                text="Failures of collectors. The sidecar's log has the message.",
                alerts=("JaxmonCollectorDown",),
            ),
        ),
        line(
            states(
                2011,
                "Web configuration",
                Target(config.max("instance"), "{{instance}}"),
                text="Whether what a sidecar's web configuration and its certificates "
                "say is in force. After a change that cannot be used, what was stays.",
                mappings=_IN_FORCE,
                thresholds=q.below(1),
                alerts=("JaxmonWebConfigFailed",),
                no_value="No sidecar has one",
            )
        ),
    )


def _versions() -> Line:
    runtime = ("job", "jax", "jaxlib", "python", "platform", "platform_version")
    running = gauge(catalog.RUNTIME_INFO, *q.PROCESS).count(*runtime)
    ours = gauge(catalog.BUILD_INFO, *q.PROCESS).count("job", "version")
    return line(
        table(
            2009,
            "Versions of JAX and its platform",
            Target(running, "Processes"),
            text="Processes by version. More than one line for a service: versions "
            "are mixed, and results or speed may differ from host to host.",
            width=16,
            labels=runtime,
        ),
        table(
            2010,
            "Versions of jaxmon",
            Target(ours, "Processes"),
            text="Agents and sidecars by version.",
            labels=("job", "version"),
        ),
    )
