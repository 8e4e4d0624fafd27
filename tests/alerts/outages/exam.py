"""The exam: each outage and its twin, what fires, what is sent, what is wrong."""

import re
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from jaxmon_alerts import rules as alerts
from jaxmon_alerts import slo
from jaxmon_alerts.slo import Slos
from tests.alerts.outages.evaluation import Firing, firings
from tests.alerts.outages.incidents import INCIDENTS
from tests.alerts.outages.machines import MACHINES
from tests.alerts.outages.notifications import Alertmanager, Notification
from tests.alerts.outages.outage import Notice, Outage
from tests.alerts.outages.serving import SERVING
from tests.alerts.outages.training import TRAINING
from tests.alerts.promtool import Rules
from tests.alerts.promtool import rules as rules_of


OUTAGES: tuple[Outage, ...] = tuple(
    outage
    for part in (SERVING, TRAINING, MACHINES, INCIDENTS)
    for outage in part.outages
)

# Outages that are evaluated together, and by how many minutes they differ.
_MOST, _PAIRED = 8, 24.0

# Those of a site, besides ours, by name. The second has no minimums.
_OBJECTIVES = {
    "own-latency": """
  - name: own-latency
    title: Own requests are fast
    description: 95 % of the requests of one route take at most half a second.
    objective: 95%
    by: [job, route]
    indicator:
      histogram: jaxmon_request_seconds{outcome="success",start="warm",route="/own"}
      above: 0.5
    minimum_events: 100
    minimum_errors: 10
""",
    "quiet-latency": """
  - name: quiet-latency
    title: Quiet requests are fast
    description: 99 % of the requests of a quiet route take at most half a second.
    objective: 99%
    by: [job, route]
    indicator:
      histogram: jaxmon_request_seconds{outcome="success",start="warm",route="/quiet"}
      above: 0.5
""",
    "foreign-latency": """
  - name: foreign-latency
    title: A foreign server is fast
    description: 95 % of the requests of a server without jaxmon take at most a second.
    objective: 95%
    by: [job, handler]
    indicator:
      histogram: http_request_duration_seconds
      above: 1.0
    minimum_events: 100
    minimum_errors: 10
""",
}
_METRICS = """
metrics:
  - name: http_request_duration_seconds
    kind: histogram
    labels: [handler]
    buckets: [0.5, 1.0, 5.0]
"""


@dataclass(frozen=True)
class Answer:
    """
    What became of one world.

    Args:
        outage: that it shows.
        broken: whether it is not the twin.
        firings: alerts of it.
        notifications: that were sent.
    """

    outage: Outage
    broken: bool
    firings: tuple[Firing, ...]
    notifications: tuple[Notification, ...]

    @property
    def cluster(self) -> str:
        """The label of its world."""
        return self.outage.world(broken=self.broken).cluster

    @property
    def pages(self) -> tuple[Notification, ...]:
        """The notifications to the receiver of pages."""
        return tuple(one for one in self.notifications if one.receiver == "page")

    @property
    def tickets(self) -> tuple[Notification, ...]:
        """The notifications to the receiver of tickets."""
        return tuple(one for one in self.notifications if one.receiver == "ticket")

    def faults(self) -> list[str]:
        """Return what is wrong, each once: late or missing, nameless, too many."""
        noise = dict.fromkeys(map(self._names, self._noise()))
        if not self.broken:
            return [f"twin: {names}" for names in noise]
        found = [text for notice in self.outage.due for text in self._missing(notice)]
        if len(self.pages) > self.outage.pages:
            found.append(f"{len(self.pages)} pages, not {self.outage.pages}")
        return found + [f"also: {names}" for names in noise]

    def _noise(self) -> list[Notification]:
        if not self.broken:
            return [*self.pages, *self.tickets]
        found = []
        for one in self.tickets:
            wanted = any(
                notice.severity == "ticket" and _matches(notice, labels)
                for notice in self.outage.due
                for labels in map(dict, one.firing)
            )
            allowed = self.outage.tickets and all(
                re.search(self.outage.tickets, dict(labels)["alertname"])
                for labels in one.firing
            )
            if not wanted and not allowed:
                found.append(one)
        return found

    def _missing(self, notice: Notice) -> list[str]:
        if notice.severity == "watchdog":
            return [] if self._watched() else ["no watchdog"]
        sent = self.pages if notice.severity == "page" else self.tickets
        begins = self.outage.start * 60
        matching = [
            one
            for one in sent
            if any(_matches(notice, dict(labels)) for labels in one.firing)
        ]
        names = ", ".join(notice.labels)
        if matching and matching[0].at < begins:
            return [f"{notice.severity} before it begins"]
        if not matching:
            named = f" that names {names}" if sent and names else ""
            return [f"no {notice.severity}{named}"]
        minutes = (matching[0].at - begins) / 60
        if minutes > notice.within:
            return [
                f"{notice.severity} after {minutes:.0f} min, not {notice.within:.0f}"
            ]
        end = round(self.outage.minutes * 60)
        lasts = any(
            one.end == end and _matches(notice, dict(one.labels))
            for one in self.firings
        )
        return (
            [f"{notice.severity} is resolved"] if notice.lasting and not lasts else []
        )

    def _watched(self) -> bool:
        """Return whether an alert fires all the time that goes to no engineer."""
        end = round(self.outage.minutes * 60)
        return any(
            "Watchdog" in one["alertname"] and not one.start and one.end == end
            for one in self.firings
        )

    def _names(self, notification: Notification) -> str:
        names = sorted({dict(labels)["alertname"] for labels in notification.firing})
        return f"{notification.receiver} {' '.join(names)}"


def _matches(notice: Notice, labels: dict[str, str]) -> bool:
    return labels.get("severity") == notice.severity and all(
        re.fullmatch(value, labels.get(name, ""))
        for name, value in notice.labels.items()
    )


def site(outages: Iterable[Outage]) -> Slos:
    """Return the objectives of the site: ours, its own, and the runs it expects."""
    text = Path(slo.__file__).with_name("objectives.yaml").read_text()
    asked = tuple(outages)
    names = {name: "" for outage in asked for name in outage.objectives}
    added = "".join(_OBJECTIVES[name] for name in names)
    text = text.replace("\n# Conditions of", f"{added}\n# Conditions of", 1)
    runs = [
        {
            "match": {"job": job, "cluster": outage.world(broken=broken).cluster},
            "processes": processes,
        }
        for outage in asked
        for job, processes in outage.runs.items()
        for broken in (True, False)
    ]
    text += _METRICS + (yaml.safe_dump({"runs": runs}) if runs else "")
    with tempfile.TemporaryDirectory(prefix="outages-") as directory:
        path = Path(directory, "slo.yaml")
        path.write_text(text)
        return slo.load(path)


def configuration(slos: Slos) -> dict[str, Any]:
    """Return the generated configuration of Alertmanager."""
    found: dict[str, Any] = yaml.load(
        alerts.render(slos)["alertmanager.yaml"], Loader=yaml.CSafeLoader
    )
    return found


def answers(outages: Iterable[Outage], only: str = "") -> list[Answer]:
    """
    Return what becomes of *outages* and their twins.

    Args:
        outages: that are evaluated together, so of about the same length.
        only: names of alerts that are evaluated, as a regular expression.
    """
    asked = tuple(outages)
    slos = site(asked)
    rules = rules_of(slos)
    if only:
        rules = _only(rules, only)
    config = configuration(slos)
    worlds = {
        (outage, broken): outage.world(broken=broken)
        for outage in asked
        for broken in (True, False)
    }
    found = firings(worlds.values(), rules)
    return [
        Answer(outage, broken, mine, tuple(Alertmanager(config).notifications(mine)))
        for (outage, broken), world in worlds.items()
        for mine in (
            tuple(one for one in found if one["cluster"] in {world.cluster, ""}),
        )
    ]


def _only(rules: Rules, names: str) -> Rules:
    groups = [
        {
            **group,
            "rules": [
                rule
                for rule in group["rules"]
                if "record" in rule or re.fullmatch(names, rule["alert"])
            ],
        }
        for group in rules.alerting
    ]
    alerting = [group for group in groups if group["rules"]]
    # Objectives without such an alert record in vain, under the names of the others.
    asked = tuple(group["name"].removesuffix("alerts") for group in alerting)
    recording = [
        group
        for group in rules.recording
        if not group["name"].startswith("jaxmon-slo-")
        or group["name"].startswith(asked)
    ]
    return Rules(recording, alerting)


def together(outages: Iterable[Outage]) -> list[list[Outage]]:
    """Return *outages* in parts of about the same length, evaluated together."""
    parts: list[list[Outage]] = []
    for outage in sorted(outages, key=lambda one: one.minutes):
        if (
            not parts
            or len(parts[-1]) == _MOST
            or outage.minutes - parts[-1][0].minutes > _PAIRED
        ):
            parts.append([])
        parts[-1].append(outage)
    return parts
