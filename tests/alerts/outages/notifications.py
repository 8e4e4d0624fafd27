"""
What people get: a model of Alertmanager's grouping, inhibition and repetition.

`tests/alerts/test_outage_bench.py` compares it with the real one. Simulated are the
parts that decide how many notifications an outage makes: the route tree, one group for
each set of `group_by` labels, which waits and is sent again when it has changed or was
not sent for long, and alerts that others inhibit at the moment of sending.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from jaxmon.host.formats import durations
from tests.alerts.outages.evaluation import Firing, Labels


_MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"(.*)"')


@dataclass(frozen=True)
class Notification:
    """
    What a receiver gets.

    Args:
        at: second.
        receiver: who gets it.
        firing: alerts that fire.
    """

    at: int
    receiver: str
    firing: frozenset[Labels]


@dataclass(frozen=True)
class Route:
    """What becomes of some alerts, with all that it inherits."""

    receiver: str
    by: tuple[str, ...]
    wait: int
    interval: int
    repeat: int


@dataclass
class Entry:
    """What a group's latest notification said, and when."""

    firing: frozenset[Labels] = frozenset()
    resolved: frozenset[Labels] = frozenset()
    at: int = 0


@dataclass
class Group:
    """Alerts that are sent together; those resolved since, and when it is due."""

    due: int
    firing: set[Labels] = field(default_factory=set)
    resolved: set[Labels] = field(default_factory=set)


Key = tuple[Route, Labels]


@dataclass
class Alertmanager:
    """
    Alertmanager with one configuration.

    Args:
        config: the document.
    """

    config: dict[str, Any]
    groups: dict[Key, Group] = field(default_factory=dict)
    entries: dict[Key, Entry] = field(default_factory=dict)

    def notifications(self, firings: Iterable[Firing]) -> list[Notification]:
        """Return what is sent while these fire, in order, resolutions left out."""
        found = list(firings)
        moments = sorted({one.start for one in found} | {one.end for one in found})
        sent: list[Notification] = []
        self.groups, self.entries = {}, {}
        for at, until in pairwise(moments):
            active = {one.labels for one in found if one.start <= at < one.end}
            members: dict[Key, set[Labels]] = {}
            for labels in active:
                route = self.route(dict(labels))
                key = route, _subset(labels, route.by)
                members.setdefault(key, set()).add(labels)
                self.groups.setdefault(key, Group(at + route.wait))
            for key, group in list(self.groups.items()):
                group.resolved |= group.firing
                group.firing = members.get(key, set())
                group.resolved -= group.firing
                sent += self._flush(key, active, at, until)
        return sorted(sent, key=lambda one: (one.at, one.receiver))

    def route(self, labels: dict[str, str]) -> Route:
        """Return the route of an alert."""
        node = self.config["route"]
        settings = dict(node)
        while True:
            for child in node.get("routes", ()):
                if _all(child["matchers"], labels):
                    node = child
                    settings |= child
                    break
            else:
                break
        return Route(
            settings["receiver"],
            tuple(settings["group_by"]),
            *(
                round(durations.seconds(settings[name]))
                for name in ("group_wait", "group_interval", "repeat_interval")
            ),
        )

    def inhibited(self, labels: Labels, active: set[Labels]) -> bool:
        """Return whether one of the *active* alerts inhibits this one."""
        target = dict(labels)
        for rule in self.config["inhibit_rules"]:
            sources, targets = rule["source_matchers"], rule["target_matchers"]
            if not _all(targets, target):
                continue
            both = _all(sources, target)
            for source in map(dict, active):
                if not _all(sources, source) or source == target:
                    continue
                # What matches both sides does not inhibit its like.
                if both and _all(targets, source):
                    continue
                if all(
                    source.get(name, "") == target.get(name, "")
                    for name in rule["equal"]
                ):
                    return True
        return False

    def _flush(
        self, key: Key, active: set[Labels], at: int, until: int
    ) -> list[Notification]:
        """Send what is due before *until*, while the same alerts fire."""
        route, group, sent = key[0], self.groups[key], []
        while group.due < until:
            now = max(group.due, at)
            firing, resolved = (
                frozenset(one for one in labels if not self.inhibited(one, active))
                for labels in (group.firing, group.resolved)
            )
            if self._needed(key, firing, resolved, now):
                self.entries[key] = Entry(firing, resolved, now)
                if firing:
                    sent.append(Notification(now, route.receiver, firing))
            group.resolved.clear()
            if not group.firing:
                del self.groups[key]
                break
            group.due = now + route.interval
        return sent

    def _needed(
        self, key: Key, firing: frozenset[Labels], resolved: frozenset[Labels], now: int
    ) -> bool:
        entry = self.entries.get(key)
        if entry is None or not firing <= entry.firing:
            return bool(firing)
        if not firing:
            return bool(resolved and entry.firing)
        repeated = now - entry.at >= key[0].repeat
        return repeated or not resolved <= entry.resolved


def _all(matchers: list[str], labels: dict[str, str]) -> bool:
    return all(_matches(matcher, labels) for matcher in matchers)


def _matches(matcher: str, labels: dict[str, str]) -> bool:
    found = _MATCHER.fullmatch(matcher)
    assert found, matcher
    name, operator, value = found.groups()
    actual = labels.get(name, "")
    pattern = value if "~" in operator else re.escape(value)
    matched = bool(re.fullmatch(pattern, actual))
    return matched != operator.startswith("!")


def _subset(labels: Labels, names: tuple[str, ...]) -> Labels:
    return frozenset((name, value) for name, value in labels if name in names)
