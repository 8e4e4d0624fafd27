"""What keys mean, what a refresh sends, and what is marked, sorted and shown."""

import re
from dataclasses import replace
from typing import Any

import pytest

from jaxmon.cli import output, ps
from jaxmon.cli.host import HostReader, ProcessView
from jaxmon.cli.top import terminal
from jaxmon.cli.top.state import ORDERS, Seen, State
from jaxmon.cli.top.terminal import BLANK, Line, line
from jaxmon.cli.top.views import host_view, process_view
from jaxmon.exposition.families import Family
from jaxmon.exposition.parse import parse, to_family
from jaxmon.facts.process import JobRank
from jaxmon.facts.status import (
    CallRate,
    FindingSummary,
    HostVerdict,
    Latency,
    ProcessVerdict,
    RequestSummary,
)
from jaxmon.host.formats.layout import columns
from jaxmon.limits import Limits


FINDING = FindingSummary(
    topic="error",
    subject="f",
    verdict="It fails \x1b[2J and fails.",
    evidence=("once", "twice"),
    action="Mend it.",
    where="train.py:9",
    seconds=0.0,
    severity="ticket",
    urgency="failure",
)


class Source:
    """Serves pages that a test wrote."""

    name = "here"

    def __init__(self, *pages: str, rank: JobRank | None = None) -> None:
        self._pages = list(pages)
        self._rank = rank or JobRank()

    def families(self) -> list[Family]:
        page = self._pages.pop(0) if len(self._pages) > 1 else self._pages[0]
        return [to_family(one) for one in parse(page)]

    def limits(self) -> Limits:
        return Limits()

    def verdict(self, limits: Limits) -> HostVerdict:  # noqa: ARG002 - fixed
        process = ProcessVerdict(7, "python3 train.py", 9.0, (FINDING,))
        process = process.replace(rank=self._rank)
        return HostVerdict({"0": process})


def page(processes: int, steps: int) -> str:
    """Return metrics of *processes*, each with *steps* and a memory of its own."""
    up, memory, buckets = [], [], []
    for n in range(processes):
        up.append(f'jaxmon_agent_up{{worker="{n}"}} 1')
        memory.append(f'process_resident_memory_bytes{{worker="{n}"}} {n}e6')
        loop = f'worker="{n}",loop="train"'
        count = steps * (n + 1)
        buckets += [
            f'jaxmon_step_seconds_bucket{{{loop},le="0.1"}} {count}',
            f'jaxmon_step_seconds_bucket{{{loop},le="+Inf"}} {count}',
            f"jaxmon_step_seconds_count{{{loop}}} {count}",
            f"jaxmon_step_seconds_sum{{{loop}}} {count / 20}",
        ]
    return "\n".join(
        [
            "# TYPE jaxmon_agent_up gauge",
            *up,
            "# TYPE process_resident_memory_bytes gauge",
            *memory,
            "# TYPE jaxmon_step_seconds histogram",
            *buckets,
            "",
        ]
    )


def host(processes: int, **options: Any) -> HostReader:
    """Return a host that was read twice, ten seconds apart."""
    times = iter((1000.0, 1010.0))
    found = HostReader(
        Source(page(processes, 100), page(processes, 150), **options),
        Limits(),
        clock=times.__next__,
    )
    found.poll()
    found.poll()
    found.judge()
    return found


def seen(processes: int, **options: Any) -> Seen:
    found = host(processes, **options)
    return Seen(found.summary(), found.processes(), 1010.0)


def texts(lines: list[Line]) -> list[str]:
    return ["".join(span.text for span in one) for one in lines]


def test_each_process_has_its_own_status() -> None:
    """Rates are those of one process, from two readings; findings belong to theirs."""
    zero, one, two = host(3).processes()

    assert [of.steps for of in (zero, one, two)] == [5.0, 10.0, 15.0]
    assert [of.memory[0] for of in (zero, one, two)] == [0.0, 1e6, 2e6]
    assert zero.command == "train.py"
    assert (zero.state, one.state) == ("degraded", "fine")
    assert zero.verdict == "It fails \x1b[2J and fails."


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("worst first", "012"),
        ("steps", "210"),
        ("memory", "210"),
        ("worker", "012"),
        ("requests", "012"),
    ],
)
def test_processes_are_sorted(order: str, expected: str) -> None:
    """The highest come first, and the worst; what is unknown keeps its order."""
    state = State(order=order)
    processes = host(3).processes()

    assert "".join(one.number for one in state.sorted(processes)) == expected
    state.reverse = True
    assert "".join(one.number for one in state.sorted(processes)) == expected[::-1]
    assert order in ORDERS


def test_who_reads_the_end_stays_there() -> None:
    """A process reports more while it runs; above the end, nothing moves."""
    state = State(opened=True)
    state.fit(30, 10)
    state.press("down", [])
    state.fit(40, 10)
    assert (state.scrolled, state.most) == (1, 30)
    state.press("end", [])
    state.fit(45, 10)
    assert state.scrolled == state.most == 35
    state.press("up", [])
    state.fit(50, 10)
    assert state.scrolled == 34
    state.fit(5, 10)
    state.fit(50, 10)
    assert state.scrolled == 0


def test_the_mark_stays_with_its_process() -> None:
    """However processes are sorted, the same one is marked, and opened."""
    state, processes = State(), host(4).processes()
    for key in ("down", "down", "s", "s", "r", "enter"):
        assert state.press(key, processes)

    assert (state.chosen, state.opened) == ("2", True)
    assert state.press("esc", processes)
    assert state.press("home", [])
    assert not state.press("q", processes)


@pytest.mark.parametrize("width", [24, 53, 80, 200])
@pytest.mark.parametrize("height", [1, 3, 8, 24])
@pytest.mark.parametrize("processes", [0, 1, 5, 64])
def test_screens_fit(width: int, height: int, processes: int) -> None:
    """The keys stand on the last line, and nothing moves the cursor."""
    found = seen(processes)
    state = State(chosen=str(processes - 1))
    lines = host_view(found, state, name="here", width=width, height=height)
    opened = process_view(
        found.processes[0] if processes else None,
        found,
        State(chosen="0", opened=True),
        width=width,
        height=height,
    )

    for shown in (lines, opened):
        assert len(shown) <= height
        assert all(text.isprintable() for text in texts(shown))
        assert columns(texts(shown)[-1]) <= max(width, 1)
    if height >= 24 and width >= 80 and processes:
        assert any(one.startswith(f"{processes - 1} ") for one in texts(lines))
        assert "Advice: Mend it." in "\n".join(texts(opened))


def test_slots_are_not_taken_for_ranks() -> None:
    """The rank of a process of a job stands beside its slot; others have no column."""
    for rank, row, title in (
        (JobRank(1, 2), "0 1 7", "jaxmon top · worker 0 · rank 1 of 2 · pid 7"),
        (JobRank(), "0 7", "worker 0 · pid 7"),
    ):
        found = seen(2, rank=rank)
        size = {"width": 100, "height": 24}
        lines = texts(host_view(found, State(), name="here", **size))
        heading = next(one for one in lines if one.startswith("WORKER"))
        assert ("RANK" in heading) is bool(str(rank))
        assert any(" ".join(one.split()).startswith(f"{row} ") for one in lines)
        opened = process_view(found.processes[0], found, State(opened=True), **size)
        assert texts(opened)[0].startswith(title.removeprefix("jaxmon top · "))


def test_keys_are_read_from_their_codes() -> None:
    """Sequences of several terminals, single characters, and what is no key."""
    text = "\x1b[A\x1bOB\x1b[5~q?\r\x7f\x1b[99;1~\x01 é"

    found = terminal.parsed(text)

    assert found == ["up", "down", "pageup", "q", "?", "enter", "backspace", " ", "é"]
    assert terminal.parsed("\x1b") == ["esc"]
    assert terminal.parsed("\x1bq") == ["esc", "q"]


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"TERM": "xterm-256color"}, True),
        ({"TERM": "vt220"}, False),
        ({"TERM": "xterm-mono"}, False),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False),
        ({"TERM": "xterm", "NO_COLOR": ""}, True),
    ],
)
def test_colours_are_those_of_the_terminal(environ, expected):
    """NO_COLOR counts unless it is empty, as its definition says."""
    assert output.has_colours(environ) == expected


def test_only_changes_are_drawn() -> None:
    """From the first difference to the last; wide characters are sent as a whole."""
    old = terminal.cells(line("0 requests a second    17:00:00"), 40)
    new = terminal.cells(line("0 requests a second    17:01:00"), 40)

    assert terminal.changed(old, new) == (27, 28)
    assert terminal.changed(new, new) == (0, 0)
    wide = terminal.cells(line("日本"), 40)
    assert len(wide) == 40
    assert terminal.changed(terminal.cells(BLANK, 40), wide) == (0, 4)
    assert terminal.changed(wide, new) == (0, 31)
    longer = terminal.cells(line("日本 日"), 40)
    assert terminal.changed(terminal.cells(line("日日 日"), 40), longer) == (2, 3)


def test_compiles_are_those_of_the_process() -> None:
    """A successor's are not compared with those of the process before it."""

    def process(started: int, compiles: int) -> str:
        return (
            f"{page(1, 5)}# TYPE jaxmon_compiles_total counter\n"
            f'jaxmon_compiles_total{{worker="0",function="f",outcome="compiled"}} '
            f"{compiles}\n# TYPE process_start_time_seconds gauge\n"
            f'process_start_time_seconds{{worker="0"}} {started}\n'
        )

    times = iter((1000.0, 1010.0))
    found = HostReader(
        Source(process(100, 10), process(1005, 3)), Limits(), clock=times.__next__
    )
    found.poll()
    found.poll()

    assert [one.compiles for one in found.processes()] == [3]


def test_a_crash_is_the_worst() -> None:
    """A process that crashed is listed, and says so."""
    died = 'jaxmon_agent_died{worker="1",loop="train"} 1\n'
    text = page(1, 5) + f"# TYPE jaxmon_agent_died gauge\n{died}"
    found = HostReader(Source(text), Limits())
    found.poll()
    processes = State().sorted(found.processes())

    assert [(one.number, one.condition) for one in processes] == [
        ("1", "crashed"),
        ("0", "running"),
    ]
    assert isinstance(processes[0], ProcessView)
    assert processes[0].verdict == "It ended without finishing."
    seen = Seen(found.summary(), processes, 1000.0)
    opened = process_view(processes[0], seen, State(), width=80, height=24)
    assert texts(opened)[texts(opened).index("FINDINGS") + 1] == "  not known"


REASON = " ".join(f"word{number}" for number in range(60))


def shown(width: int, height: int) -> list[str]:
    """Return the first screen, where two processes have a long finding."""
    found = seen(3)
    finding = FINDING.replace(verdict=REASON)
    first, *others = found.processes
    views = [
        replace(one, agent=one.agent.replace(findings=(finding,))) for one in others
    ]
    found = replace(found, processes=[first, *views])
    return texts(host_view(found, State(), name="", width=width, height=height))


def test_a_wide_terminal_shows_findings_whole() -> None:
    """Where all have room; else, and on 80 columns, each takes a line."""
    wide = shown(200, 50)
    assert " ".join(" ".join(wide).split()).count(REASON) == 2
    assert all(columns(one) <= 200 for one in wide)

    for width, height in ((200, 14), (80, 24)):
        low = [one for one in shown(width, height) if "word0 " in one]
        assert len(low) == 2
        assert all("\N{HORIZONTAL ELLIPSIS}" in one for one in low)


def test_tables_are_as_wide_as_they_need() -> None:
    """On a wide terminal values stand beside their names; on 80 columns as before."""
    found = seen(1)

    def row(width: int) -> str:
        lines = texts(
            process_view(
                found.processes[0], found, State(opened=True), width=width, height=50
            )
        )
        return next(one for one in lines if one.startswith("  train"))

    assert columns(row(200)) < 80
    assert columns(row(80)) == 80
    assert row(200).split() == row(80).split()


def test_no_number_is_cut() -> None:
    """The widest of each column has room, as it is shown there."""
    route = RequestSummary(route="r", latency=Latency(p50=80.0, p95=719.0, p99=8e4))
    found = seen(1)
    (process,) = found.processes
    summary = process.summary.replace(requests=(route,))
    agent = process.agent.replace(resident_bytes=0.988 * 1024**3)
    process = replace(process, agent=agent, summary=summary)
    found = replace(found, processes=[process])
    for width in (80, 200):
        host = host_view(found, State(), name="", width=width, height=24)
        opened = process_view(
            process, found, State(opened=True), width=width, height=24
        )
        text = "\n".join(texts(host) + texts(opened))
        assert "0.988 GiB" in text
        assert re.search(r"r .* ~1 min +~12 min +~22 h ", text)


@pytest.mark.parametrize("rate", [2610.0, 0.512, 0.00512, 999_000.0])
@pytest.mark.parametrize("width", [80, 200])
def test_no_rate_is_cut(capsys, monkeypatch, rate, width):
    """Those of calls have the longest unit but one."""
    found = seen(1)
    (process,) = found.processes
    agent = process.agent.replace(calling=CallRate("f", rate))
    summary = process.summary.replace(loops=())
    process = replace(process, agent=agent, summary=summary)
    text = f" {process.rate} "
    assert text.endswith(" calls/s ")
    screen = replace(found, processes=[process])
    assert text in "\n".join(
        texts(host_view(screen, State(), name="", width=width, height=24))
    )
    monkeypatch.setattr(output, "report_width", lambda: width)
    ps._show(found.summary, [process], [], "1 s")
    assert text in capsys.readouterr().out
