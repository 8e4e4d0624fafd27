"""Lying agents next to honest ones: all output can be parsed."""

import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from jaxmon.exposition.encode import OPENMETRICS, TEXT, encode
from jaxmon.host.http.server import Request, Response
from jaxmon_exporter.collectors.agents import Agents
from jaxmon_exporter.polling import Poller
from tests.fakes.agents import Serve


Lie = Callable[[random.Random, list[str]], None]

HONEST = """\
# HELP jaxmon_jit_calls_total Calls.
# TYPE jaxmon_jit_calls_total counter
jaxmon_jit_calls_total{function="f"} 7
jaxmon_jit_calls_total{function="g"} 9
# HELP jaxmon_queue_depth Depth.
# TYPE jaxmon_queue_depth gauge
jaxmon_queue_depth{queue="a"} 2.5
# HELP jaxmon_build_info Version.
# TYPE jaxmon_build_info gauge
jaxmon_build_info{version="1"} 1
# HELP jaxmon_scrape_seconds Time.
# TYPE jaxmon_scrape_seconds histogram
jaxmon_scrape_seconds_bucket{le="0.001"} 1
jaxmon_scrape_seconds_bucket{le="0.1"} 3
jaxmon_scrape_seconds_bucket{le="+Inf"} 4
jaxmon_scrape_seconds_sum 1.5
jaxmon_scrape_seconds_count 4
# HELP jaxmon_future_seconds What a later release may have.
# TYPE jaxmon_future_seconds histogram
jaxmon_future_seconds_bucket{kind="x",le="0.5"} 1
jaxmon_future_seconds_bucket{kind="x",le="+Inf"} 1
jaxmon_future_seconds_sum{kind="x"} 0.25
jaxmon_future_seconds_count{kind="x"} 1
"""

NUMBERS = (
    *("NaN", "-1", "+Inf", "-Inf", "1e400", "-0", "0.5", "2", "4294967295"),
    *("18446744073709551615", "1e-320", "many", "0x10", "", "1 1700000000000"),
    *('1 # {trace_id="x"} 1', "1 -5", "1_000", "007"),
)
KINDS = ("counter", "gauge", "histogram", "summary", "untyped", "info", "unknown")
NAMES = (
    *("jaxmon_jit_calls", "jaxmon_jit_calls_created", "jaxmon_scrape_seconds_count"),
    *("jaxmon_scrape_seconds_bucket", "jaxmon_build", "jaxmon_future_seconds"),
    *("jaxmon_future", "jaxmon_future_total", "jaxmon_future_info", "jaxmon_a:b"),
    *("jaxmon_future_created", "jaxmon_future_sum", "jaxmon_future_bucket"),
    *("process_open_fds", "process_open", "python_info", "jaxmon_agent_up", "up"),
    *("jaxmon_ü", "jaxmon-x", "jaxmon_", "_jaxmon", '{"jaxmon_x"}', "jaxmon_x\x00"),
)
LABELS = (
    *('a="1",b="2"', 'b="2",a="1"', 'a=""', 'a="",b="2"', 'b="2",a="",', 'a="1",a="2"'),
    *('__name__="up"', 'le="NaN"', 'le="1"', 'quantile="2"', 'quantile="0.5"'),
    *('worker="9"', 'worker="9",exported_worker="8"', 'job="x",instance="y"'),
    *('a="\\\\"', 'a="\\n"', 'a="\\""', 'a="\\x"', 'a="x\x00y"', 'a="\x01\x1f\x7f"'),
    *('a="\r"', 'a="\u2028\x85"', 'a="# EOF"', 'a="}"', 'a="{,}"', 'a="\U0001f600"'),
    *('uuid="GPU-1"', 'a="' + "x" * 3000 + '"', 'a="' + "y" * 20000 + '"'),
    *('ä="1"', '1a="1"', "a=1", "a='1'", 'a="1" ,b="2"', 'a="\ufffe\ufdd0"'),
)
HELPS = (
    *(
        "",
        "plain",
        'a "quote',
        "back\\slash",
        "line\\nbreak",
        "tail\\",
        "\x00\r",
        "# EOF",
    ),
    *("x" * 5000, "ü \u2028", '"', '\\"', "{}"),
)


def lie(seed: int) -> str:
    """Return a page on which one to four things are not as they should be."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    lines = HONEST.splitlines()
    for _ in range(chance.choice((1, 1, 2, 4))):
        chance.choice(LIES)(chance, lines)
    return "\n".join(lines) + "\n"


def _samples(lines: Sequence[str]) -> list[int]:
    return [place for place, line in enumerate(lines) if line and line[0] != "#"]


def _value(chance: random.Random, lines: list[str]) -> None:
    place = chance.choice(_samples(lines))
    series = lines[place].rpartition(" ")[0]
    lines[place] = f"{series} {chance.choice(NUMBERS)}"


def _label(chance: random.Random, lines: list[str]) -> None:
    place = chance.choice(_samples(lines))
    name = lines[place].partition("{")[0].partition(" ")[0]
    lines[place] = f"{name}{{{chance.choice(LABELS)}}} {chance.randint(0, 9)}"


def _again(chance: random.Random, lines: list[str]) -> None:
    lines.insert(
        chance.randrange(len(lines) + 1), lines[chance.choice(_samples(lines))]
    )


def _reordered(_: random.Random, lines: list[str]) -> None:
    lines += [
        "# TYPE jaxmon_new gauge",
        'jaxmon_new{a="1",b="2"} 1',
        'jaxmon_new{b="2",a="1"} 2',
    ]


def _emptied(chance: random.Random, lines: list[str]) -> None:
    lines += ["# TYPE jaxmon_none gauge", 'jaxmon_none{a="",b="1"} 1']
    if chance.random() < 0.5:
        lines.append('jaxmon_none{b="1"} 2')


def _named(chance: random.Random, lines: list[str]) -> None:
    name, kind = chance.choice(NAMES), chance.choice(KINDS)
    if chance.random() < 0.5:
        lines.append(f"# HELP {name} {chance.choice(HELPS)}")
    if chance.random() < 0.8:
        lines.append(f"# TYPE {name} {kind}")
    for suffix in chance.choice((("",), ("_sum", "_count"), ("_total",), ("_bucket",))):
        lines.append(f"{name}{suffix} {chance.randint(0, 9)}")
        labels = chance.choice(LABELS)
        lines.append(f"{name}{suffix}{{{labels}}} {chance.choice(NUMBERS)}")


def _helped(chance: random.Random, lines: list[str]) -> None:
    lines += [
        f"# HELP jaxmon_helped {chance.choice(HELPS)}",
        "# TYPE jaxmon_helped gauge",
        "jaxmon_helped 1",
    ]


def _dropped(chance: random.Random, lines: list[str]) -> None:
    del lines[chance.randrange(len(lines))]


def _swapped(chance: random.Random, lines: list[str]) -> None:
    first, second = chance.sample(range(len(lines)), 2)
    lines[first], lines[second] = lines[second], lines[first]


def _distribution(chance: random.Random, lines: list[str]) -> None:
    name = chance.choice(("jaxmon_step_seconds", "jaxmon_lie", "jaxmon_lie_seconds"))
    lines.append(f"# TYPE {name} {chance.choice(('histogram', 'summary'))}")
    bounds = ("0.1", "1", "1.0", "+Inf", "NaN", "-1", "inf", "1e999", "0.50", "2", "")
    counts = ("1", "2", "0.5", "-1", "3")
    for _ in range(chance.randint(0, 5)):
        label = chance.choice(("le", "le", "le", "quantile"))
        bound, count = chance.choice(bounds), chance.choice(counts)
        where = chance.choice(("_bucket", "_bucket", ""))
        more = chance.choice(("", "", 'a="b",', 'loop="a",'))
        lines.append(f'{name}{where}{{{more}{label}="{bound}"}} {count}')
    lines += [
        f"{name}{part} {chance.choice((*NUMBERS[:8], '3', '1'))}"
        for part in ("_sum", "_count", "_created")
        if chance.random() < 0.7
    ]


def _other_kind(chance: random.Random, lines: list[str]) -> None:
    name = "jaxmon_future_seconds"
    lines[:] = [line for line in lines if name not in line]
    other, kind = chance.choice((name, f"{name}_count", f"{name}_sum")), "gauge"
    lines += [f"# TYPE {other} {chance.choice((kind, 'untyped'))}", f"{other} 5"]


def _raw(chance: random.Random, lines: list[str]) -> None:
    place = chance.randrange(len(lines))
    text = lines[place]
    cut = chance.randrange(len(text) + 1)
    stray = chance.choice(('"', "\\", "}", "{", ",", "\x00", "\r", "\n", "ü", " ", "#"))
    lines[place] = text[:cut] + stray + text[cut + chance.randint(0, 1) :]


LIES: tuple[Lie, ...] = (
    *(_value, _label, _again, _reordered, _emptied, _named, _helped, _dropped),
    *(_swapped, _distribution, _other_kind, _raw),
)


SEEDS = range(600)
ERRORS = re.compile(r'jaxmon_collector_errors_total\{.*reason="(agent_\w+)"\}')


class Host:
    """An honest agent, liars before and behind it, and the collector of them all."""

    def __init__(self, run_dir: Path, serve: Serve) -> None:
        self.pages = dict.fromkeys(range(3), HONEST)
        for slot in self.pages:
            serve(slot, self._handler(slot))
        self.poller = Poller(Agents(run_dir))

    def _handler(self, slot: int) -> Callable[[Request], Response]:
        return lambda _: Response(self.pages[slot].encode("utf-8", "replace"))

    def poll(self, seed: int) -> dict[str, float]:
        """Read once while the agents 0 and 2 lie, and return the page by series."""
        self.pages[0], self.pages[2] = lie(2 * seed), lie(2 * seed + 1)
        self.poller.poll()
        return dict(
            sample for family in self.poller.families() for sample in family.samples
        )

    def encoded(self, fmt: Any = TEXT) -> str:
        return encode(self.poller.families(), fmt).decode()


@pytest.fixture
def host(run_dir: Path, serve: Serve) -> Host:
    return Host(run_dir, serve)


def lost(page: dict[str, float], worker: int) -> set[str]:
    """Return which series of the honest page *worker* does not have."""
    found = set()
    for line in HONEST.splitlines():
        if not line.startswith("#"):
            series, _, value = line.rpartition(" ")
            name, _, labels = series.partition("{")
            more = f",{labels}" if labels else "}"
            if page.get(f'{name}{{worker="{worker}"{more}') != float(value):
                found.add(series)
    return found


def test_every_page_can_be_read_whatever_agents_say(host: Host) -> None:
    """
    Both parsers of prometheus_client, the strict one of OpenMetrics among them, read
    every page, and no series is there twice. Honest agents are exported exactly; only a
    metric to which an earlier liar gave another kind may be missing, and is counted.
    """
    before = dict.fromkeys(("agent_page", "agent_conflict"), 0.0)
    refused = dropped = conflicts = 0
    for seed in SEEDS:
        page = host.poll(seed)
        texts = {fmt: host.encoded(fmt) for fmt in (TEXT, OPENMETRICS)}
        try:
            for text, parse in (
                (texts[TEXT], parse_text),
                (texts[OPENMETRICS], parse_openmetrics),
            ):
                read = [
                    (sample.name, frozenset(sample.labels.items()))
                    for family in parse(text)
                    for sample in family.samples
                ]
                assert len(set(read)) == len(read)
        except Exception as error:
            msg = f"seed {seed}: {error!r}\n{host.pages[0]!r}\n{host.pages[2]!r}"
            raise AssertionError(msg) from error
        counted = {
            match[1]: value
            for series, value in page.items()
            if (match := ERRORS.fullmatch(series))
        }
        ups = [page[f'jaxmon_agent_up{{worker="{n}"}}'] for n in range(3)]
        missing = lost(page, 1)
        assert ups[1] == 1, seed
        assert {"jaxmon_future_seconds" in series for series in missing} <= {True}, seed
        assert counted["agent_page"] - before["agent_page"] == 3 - sum(ups), seed
        more = counted["agent_conflict"] - before["agent_conflict"]
        assert more > 0 or not missing, seed
        refused, dropped = refused + (3 - sum(ups) > 0), host.poller.dropped
        conflicts += more > 0
        before = counted

    # The seeds try all of it.
    assert len(SEEDS) * 0.3 < refused < len(SEEDS)
    assert dropped > 10
    assert conflicts > 2
