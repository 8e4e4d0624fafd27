"""Monitoring health: targets, collectors, hooks."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.artifacts.dashboards import hardware
from jaxmon.artifacts.dashboards import queries as q
from jaxmon.artifacts.dashboards.kinds import line, row, states, table, timeseries
from jaxmon.artifacts.dashboards.model import Line, Mapping, Row, Target
from jaxmon.artifacts.promql import counter, gauge, histogram


_IN_FORCE = (Mapping("0", "failed", "red"), Mapping("1", "current", "green"))
_HOOKS = (Mapping("0", "inactive", "red"), Mapping("1", "active", "green"))


def oncall() -> Row:
    """Return panels that show whether the other data can be trusted."""
    hooks = gauge(catalog.HOOK_ACTIVE, *q.PROCESS).min("hook")
    collectors = hardware.host(catalog.COLLECTOR_SUCCESS)
    age = hardware.host(catalog.COLLECTOR_AGE_SECONDS)
    failed = counter(catalog.INTERNAL_ERRORS, *q.PROCESS)
    crashes = counter(catalog.AGENT_CRASHES, *q.PROCESS)
    died = gauge(catalog.AGENT_DIED, *q.PROCESS)
    worker = ("instance", "worker")
    by = ("instance", "collector")
    named = "{{instance}} {{collector}}"
    return row(
        9,
        "Monitoring health",
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
                text=(
                    "Whether the last poll of each collector succeeded. nvml is "
                    "down on hosts without an NVIDIA driver, which is normal."
                ),
                mappings=q.UP,
                thresholds=q.below(1),
                alerts=("JaxmonCollectorDown",),
            ),
            timeseries(
                803,
                "Age of collected data",
                Target(age.max(*by), named),
                text=(
                    "Age of the data served by each sidecar. Grows when a driver or "
                    "an agent hangs."
                ),
                alerts=("JaxmonCollectorDown",),
            ),
        ),
        line(
            states(
                804,
                "Hooks",
                Target(hooks, "{{hook}}"),
                text=(
                    "Whether each agent hook is active, in every process. The metrics "
                    "of an inactive hook are missing."
                ),
                mappings=_HOOKS,
                thresholds=q.below(1),
                alerts=("JaxmonAgentHookInactive",),
            ),
            timeseries(
                805,
                "Internal errors",
                Target(failed.mishaps().sum("site"), "{{site}}"),
                text="Contained failures of jaxmon's own code. Please report them.",
                no_value="None",
            ),
            states(
                806,
                "Agents up",
                Target(gauge(catalog.AGENT_UP, *q.PROCESS), "{{instance}} {{worker}}"),
                text=(
                    "Whether the process in each slot responds. If down, it was "
                    "killed or is hung; the alert says which."
                ),
                mappings=q.UP,
                thresholds=q.below(1),
                alerts=("JaxmonAgentSilent",),
            ),
            timeseries(
                807,
                "Processes that crashed",
                Target(crashes.mishaps().sum(*worker), "{{instance}} {{worker}}"),
                Target(died.max(*worker) > 0, "{{instance}} {{worker}} not replaced"),
                text=(
                    "Processes that ended without finishing, per graph interval, and "
                    "whether another has taken their place since."
                ),
                alerts=("JaxmonCrashLoop", "JaxmonTrainingDied"),
                no_value="None",
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
                text=(
                    "Hook status per agent. An inactive hook could not attach to this "
                    "JAX, or disabled itself after failures."
                ),
                mappings=_HOOKS,
                thresholds=q.below(1),
                alerts=("JaxmonAgentHookInactive",),
            ),
            timeseries(
                2002,
                "Scrape duration",
                Target(q.known(scrape), q.NAMED_PROCESS),
                text="p95 scrape rendering time of each agent or sidecar.",
            ),
        ),
        line(
            timeseries(
                2003,
                "Label overflow",
                Target(q.per_minute(overflow), "{{label}}"),
                text=(
                    "Lookups per minute that ended in 'other'. Increase "
                    "max_functions, or stop creating new functions."
                ),
            ),
            timeseries(
                2004,
                "Dropped items",
                Target(q.per_minute(dropped), "{{what}}"),
                text="Items jaxmon dropped to stay within its limits.",
            ),
            timeseries(
                2005,
                "Internal errors by process",
                Target(
                    failed.sum(*q.BY_PROCESS, "site"), f"{q.NAMED_PROCESS} {{{{site}}}}"
                ),
                text="Contained failures of jaxmon's own code, by process and site.",
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
                "Collection duration",
                Target(took.max(*by), named),
                text=(
                    "Duration of each collector's last poll. A slowing driver shows "
                    "here before it hangs."
                ),
            ),
            timeseries(
                2007,
                "Data age by collector",
                Target(age.max(*by), named),
                text="Age of the data that each collector serves.",
                alerts=("JaxmonCollectorDown",),
            ),
            timeseries(
                2008,
                "Collector errors by reason",
                Target(q.per_minute(errors), f"{named} {{{{reason}}}}"),
                text="Collector failures. The sidecar's log has the messages.",
                alerts=("JaxmonCollectorDown",),
            ),
        ),
        line(
            states(
                2011,
                "Web configuration",
                Target(config.max("instance"), "{{instance}}"),
                text=(
                    "Whether a sidecar's current web configuration and certificates "
                    "are in effect. After an invalid change, the previous ones stay "
                    "in effect."
                ),
                mappings=_IN_FORCE,
                thresholds=q.below(1),
                alerts=("JaxmonWebConfigFailed",),
                no_value="Not configured",
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
            text=(
                "Processes by version. Several lines for one service: mixed versions, "
                "so results or speed may differ between hosts."
            ),
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
