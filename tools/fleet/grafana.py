"""What Grafana asks Prometheus for a dashboard: variables filled in, steps, windows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias


Choice: TypeAlias = Mapping[str, str]
Ask: TypeAlias = Callable[["Query"], list[dict[str, str]]]

PIXELS = 1440
"""Width of a panel, of which Grafana asks for as many points."""

# Grafana rounds steps to these, in seconds; each up to the limit beside it.
_STEPS = (
    *((1, 1.5), (2, 3.5), (5, 7.5), (10, 12.5), (15, 17.5), (20, 25), (30, 45)),
    *((60, 90), (120, 210), (300, 450), (600, 750), (900, 1050), (1200, 1500)),
    *((1800, 2700), (3600, 5400), (7200, 9000), (10800, 16200), (21600, 32400)),
)
_VARIABLE = re.compile(r"\$(?:\{(\w+):(pipe)\}|\{?([a-zA-Z_]\w*)\}?)")
_LIST = re.compile(r"label_values\((.+), (\w+)\)")
_RESULT = re.compile(r"query_result\((.+)\)")
_UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 604800}


@dataclass(frozen=True)
class Query:
    """
    One request.

    Args:
        expression: with all variables filled in.
        step: seconds; 0 asks only for the end of the range.
        label: asks for the values of a label of the selected series instead.
    """

    expression: str
    step: float = 0.0
    label: str = ""


@dataclass(frozen=True)
class Item:
    """
    A panel, a variable or an annotation.

    Args:
        kind: ``variable``, ``annotation`` or the type of the panel.
        hidden: whether its row is collapsed, so that it asks nothing until opened.
    """

    kind: str
    title: str
    queries: tuple[Query, ...]
    hidden: bool = False
    number: int = 0


@dataclass
class Board:
    """
    A dashboard that someone looks at.

    Args:
        document: in Grafana's classic model.
        seconds: the time range; 0 is that of the document.
        scrape: interval that the data source states.
        chosen: values of variables; everything of those that it lacks.
    """

    document: dict[str, Any]
    seconds: float = 0.0
    scrape: float = 30.0
    chosen: Choice = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict, init=False)
    plain: dict[str, str] = field(default_factory=dict, init=False)
    sizes: dict[str, int] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.seconds = self.seconds or _ago(self.document["time"]["from"])

    @property
    def name(self) -> str:
        """Return its title."""
        title: str = self.document["title"]
        return title

    def variables(self, ask: Ask) -> Iterator[Item]:
        """Choose values of all variables from left to right, and yield what it asks."""
        for one in self.document["templating"]["list"]:
            if one["type"] != "query":
                continue
            query = self._list(one)
            found = _options(one, query, ask(query))
            self.sizes[one["name"]] = len(found)
            self.values[one["name"]] = self._value(one, found)
            self.plain[one["name"]] = self._value(one, found, escaped=False)
            yield Item("variable", one["name"], (query,))

    def items(self) -> Iterator[Item]:
        """Yield annotations and panels, once the variables have values."""
        for one in self.document["annotations"]["list"]:
            if "expr" in one:
                step = max(self.step(PIXELS), _seconds(one.get("step") or "1s"))
                query = Query(self._filled(one["expr"], step), step)
                yield Item("annotation", one["name"], (query,))
        for panel, hidden in self._panels():
            points = panel.get("maxDataPoints") or PIXELS
            step = self.step(points, _seconds(panel.get("interval") or "1s"))
            yield Item(
                panel["type"],
                panel["title"],
                tuple(
                    Query(
                        self._filled(target["expr"], step),
                        0.0 if target.get("instant") else step,
                    )
                    for target in panel.get("targets", ())
                ),
                hidden,
                panel["id"],
            )

    def step(self, points: float, least: float = 0.0) -> float:
        """Return the seconds between samples, for so many *points*."""
        step = rounded(self.seconds / points)
        return max(step, self.scrape, least)

    def _panels(self) -> Iterator[tuple[dict[str, Any], bool]]:
        for one in self.document["panels"]:
            if one["type"] != "row":
                yield one, False
            for inside in one.get("panels", ()):
                yield inside, bool(one.get("collapsed"))

    def _list(self, variable: dict[str, Any]) -> Query:
        step = self.step(PIXELS)
        text = variable["definition"]
        if found := _LIST.fullmatch(text):
            return Query(self._filled(found[1], step), label=found[2])
        if found := _RESULT.fullmatch(text):
            return Query(self._filled(found[1], step))
        msg = (
            f"variable {variable['name']} asks {text!r}; only label_values and "
            "query_result are known"
        )
        raise ValueError(msg)

    def _value(
        self, variable: dict[str, Any], found: Sequence[str], *, escaped: bool = True
    ) -> str:
        chosen = self.chosen.get(variable["name"])
        if chosen is not None:
            return chosen
        if variable.get("allValue"):
            return str(variable["allValue"])
        if not escaped:
            return "|".join(found)
        text = "|".join(map(_escaped, found))
        return f"({text})" if len(found) > 1 else text

    def _filled(self, text: str, step: float) -> str:
        own = {
            "__rate_interval": f"{max(step + self.scrape, 4 * self.scrape):.0f}s",
            "__interval": f"{step:.0f}s",
            "__range": f"{self.seconds:.0f}s",
            **self.values,
        }
        return _VARIABLE.sub(
            lambda one: self.plain[one[1]] if one[2] else own[one[3]], text
        )


def boards(directory: Path, chosen: Choice, *, scrape: float = 30.0) -> Iterator[Board]:
    """
    Yield the boards of *directory* as people look at them: over their own time range
    with everything chosen, On-call over six hours, and Debug also with *chosen*.
    """
    for path in sorted(directory.glob("*.json")):
        document = json.loads(path.read_text())
        long = 6 * 3600.0 if document["uid"].endswith("oncall") else 0.0
        yield Board(document, long, scrape)
        if document["uid"].endswith("debug"):
            yield Board(document, long, scrape, chosen)


def read(found: Iterable[Board]) -> dict[str, float]:
    """
    Return the expressions of all queries, as far as windows and names go, and how many
    seconds before the end of a range each begins.
    """
    expressions: dict[str, float] = {}
    for board in found:
        blank = replace(board)
        for item in (*blank.variables(lambda _: []), *blank.items()):
            for one in item.queries:
                reach = board.seconds if one.step or one.label else 0.0
                known = expressions.get(one.expression, 0.0)
                expressions[one.expression] = max(known, reach)
    return expressions


def rounded(seconds: float) -> float:
    """Return the step that Grafana chooses instead of so many *seconds*."""
    return next((step for step, limit in _STEPS if seconds < limit), 86400.0)


def _options(
    variable: dict[str, Any], query: Query, found: list[dict[str, str]]
) -> list[str]:
    """Return the values that a variable offers, of the *found* series or values."""
    if query.label:
        return sorted(one[query.label] for one in found)
    pattern = re.compile(variable["regex"].strip("/"))
    lines = (",".join(f'{name}="{one[name]}"' for name in one) for one in found)
    return sorted({hit[1] for line in lines if (hit := pattern.search(line))})


def _escaped(value: str) -> str:
    """Return *value* as Grafana writes it in a regular expression in a string."""
    return re.sub(r"([\\^$*+?.()|{}\[\]/])", r"\\\\\1", value)


def _ago(text: str) -> float:
    return _seconds(text.removeprefix("now-"))


def _seconds(text: str) -> float:
    found = re.fullmatch(r">?(\d+)(s|m|h|d|w)", text)
    if found is None:
        msg = f"{text!r} is no duration such as 30s or 6h"
        raise ValueError(msg)
    return float(int(found[1]) * _UNITS.get(found[2], 1))
