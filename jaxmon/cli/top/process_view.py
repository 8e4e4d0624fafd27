"""One process: findings, requests, steps, queues, functions, devices."""

from __future__ import annotations

import time
from collections.abc import Iterator

from jaxmon.cli.host import ProcessView
from jaxmon.cli.top.host_view import answer_lines, footer, title
from jaxmon.cli.top.lines import (
    BAD,
    BLANK,
    DOUBTFUL,
    QUIET,
    STRONG,
    Line,
    line,
    rows,
    styled,
)
from jaxmon.cli.top.reader import Seen
from jaxmon.cli.top.state import State
from jaxmon.facts.status import AgentSummary, FunctionSummary, Latency
from jaxmon.host.formats.layout import (
    UNKNOWN,
    Column,
    ago,
    amount,
    clean,
    duration,
    share,
    shortened,
    size,
    wrapped,
)
from jaxmon.symptoms.findings import NOTHING


_MOST_FUNCTIONS = 20
_MOST_REASONS = 5
_MOST_EVIDENCE = 3


def process_view(
    last: ProcessView | None, seen: Seen, state: State, *, width: int, height: int
) -> list[Line]:
    """
    Return the lines of a process, *height* of them at most.

    Args:
        last: the process as it was seen last while it ran.
        seen: what was read last.
        state: which one, and where in it.
        width: of a line.
        height: of the screen.
    """
    if last is None:
        lines = [title("jaxmon top", seen, state, width)]
        return [*lines[: height - 1], footer(state, width)]
    present = {one.number: one for one in seen.processes}.get(last.number)
    head = [_title(last, seen, state, width), *_life(last, present, state, width)]
    body = list(_body(last, width))
    room = max(height - len(head) - 1, 1)
    state.page, state.most = max(room - 1, 1), max(len(body) - room, 0)
    state.scrolled = min(state.scrolled, state.most)
    shown = body[state.scrolled : state.scrolled + room]
    if state.scrolled < state.most:
        below = len(body) - state.scrolled - room + 1
        shown[-1] = line((f"... {below} more lines below", QUIET))
    blank = [BLANK] * (room - len(shown))
    lines = [*head, *shown, *blank]
    return [*lines[: height - 1], footer(state, width)]


def _title(one: ProcessView, seen: Seen, state: State, width: int) -> Line:
    agent = one.agent
    facts = [
        f"worker {one.number}",
        "" if agent.pid is None else f"pid {agent.pid}",
        one.command,
    ]
    return title(" · ".join(filter(None, facts)), seen, state, width)


def _life(
    one: ProcessView, present: ProcessView | None, state: State, width: int
) -> list[Line]:
    """Return how old the process is, and whether it still runs."""
    agent = one.agent
    ram = agent.resident_bytes
    facts = [
        "" if agent.age is None else f"started {ago(agent.age)}",
        "" if agent.jax is None else f"JAX {agent.jax}",
        agent.platform or "",
        "" if ram is None else f"{size(ram)} of host memory",
    ]
    text = shortened(clean(" · ".join(filter(None, facts))), width)
    lines = [line((text, QUIET))] if text else []
    then = time.strftime("%H:%M:%S", time.localtime(one.summary.time))
    if present is None:
        lines += _paragraph(
            f"It has ended. Below is what it did at {then}.", DOUBTFUL, width
        )
    elif present.condition == "crashed":
        lines += _paragraph(
            f"It has crashed. Below is what it did at {then}.", BAD, width
        )
    elif present.condition != "running":
        text = f"It is {present.condition} Below is what it did at {then}."
        lines += _paragraph(text.replace("stopped ", "stopped. "), BAD, width)
    elif _is_another(agent, state):
        text = "The process that was opened has ended; this is its successor."
        lines += _paragraph(text, DOUBTFUL, width)
    return lines


def _is_another(agent: AgentSummary, state: State) -> bool:
    """
    Return whether *agent* is not the process that was opened. In a container all may
    have one pid; of one that has just started, only the pid may be known.
    """
    pid, started = agent.pid, agent.started
    if pid and state.pid and pid != state.pid:
        return True
    return bool(started and state.began and abs(started - state.began) > 1)


def _paragraph(text: str, colour: str, width: int) -> list[Line]:
    return styled(wrapped(text, width), f"{STRONG} {colour}")


def _body(one: ProcessView, width: int) -> Iterator[Line]:
    yield from answer_lines(one.summary.answer, width, most=_MOST_REASONS)
    for section in (
        _findings(one, width),
        _requests(one, width),
        _steps(one, width),
        _queues(one, width),
        _functions(one, width),
        _errors(one, width),
        _devices(one, width),
    ):
        if section:
            yield BLANK
            yield from section


def _findings(one: ProcessView, width: int) -> list[Line]:
    lines = [line(("FINDINGS", STRONG))]
    agent = one.agent
    if agent.findings is None:
        text = f"It {agent.trouble}." if agent.trouble else "being read ..."
        return [
            *lines,
            *styled(wrapped(clean(text), width, first="  ", rest="  "), QUIET),
        ]
    if agent.verdict:
        lines.append(line(f"  {NOTHING}"))
    for number, found in enumerate(agent.findings, 1):
        lead = f"  {number}. "
        rest = " " * len(lead)
        colour = {"failure": BAD, "time": DOUBTFUL}.get(found.urgency, "")
        text = clean(found.verdict)
        lines += styled(wrapped(text, width, first=lead, rest=rest), colour)
        for said in found.evidence[:_MOST_EVIDENCE]:
            text = clean(said)
            lines += styled(wrapped(text, width, first=f"{rest}  ", rest=f"{rest}    "))
        if found.action:
            text = clean(f"Advice: {found.action}")
            lines += styled(wrapped(text, width, first=rest, rest=rest), QUIET)
    return lines


def _requests(one: ProcessView, width: int) -> list[Line]:
    layout = [
        Column("REQUESTS", right=False),
        Column("A SECOND", 10),
        Column("ERRORS", 9),
        Column("P50", 9),
        Column("P95", 9),
        Column("P99", 9),
        Column("COLD", 8),
        Column("NOW", 6),
    ]
    cells = []
    for of in one.summary.requests:
        times = of.latency or Latency()
        cells.append(
            [
                of.route,
                _rate(of.rate),
                _share(of.error_ratio),
                _seconds(times.p50),
                _seconds(times.p95),
                _seconds(times.p99),
                _share(of.cold_ratio),
                UNKNOWN if of.in_progress is None else f"{of.in_progress:,.0f}",
            ]
        )
    return _table(layout, cells, width)


def _steps(one: ProcessView, width: int) -> list[Line]:
    layout = [
        Column("STEPS", right=False),
        Column("A SECOND", 10),
        Column("MEAN", 9),
        Column("P95", 9),
        Column("DATA WAIT", 11),
        Column("GOODPUT", 9),
        Column("LAST", 14),
    ]
    cells = [
        [
            of.loop,
            _rate(of.rate),
            _seconds(of.mean),
            _seconds(of.p95),
            _share(of.data_wait_ratio),
            _share(of.goodput),
            "ended" if of.age is None else ago(of.age),
        ]
        for of in one.summary.loops
    ]
    return _table(layout, cells, width)


def _queues(one: ProcessView, width: int) -> list[Line]:
    layout = [Column("QUEUES", right=False), Column("DEPTH", 10)]
    cells = [[of.queue, f"{of.depth:,.0f}"] for of in one.summary.queues]
    batches = [
        Column("BATCHES", right=False),
        Column("A SECOND", 10),
        Column("FILL", 9),
    ]
    filled = [[of.route, _rate(of.rate), _share(of.fill)] for of in one.summary.batches]
    return [*_table(layout, cells, width), *_table(batches, filled, width)]


def _functions(one: ProcessView, width: int) -> list[Line]:
    layout = [
        Column("FUNCTIONS", right=False),
        Column("CALLS", 11),
        Column("HIT RATE", 10),
        Column("COMPILES", 10),
        Column("RECOMPILES", 12),
        Column("COMPILE TIME", 14),
    ]
    every = one.summary.functions
    own = [of for of in every if not of.internal]
    cells = [_function(of.name, [of]) for of in own[:_MOST_FUNCTIONS]]
    if more := own[_MOST_FUNCTIONS:]:
        cells.append(_function(f"{len(more)} more", more))
    if internal := [of for of in every if of.internal]:
        cells.append(_function(f"JAX's own ({len(internal)})", internal))
    return _table(layout, cells, width)


def _function(name: str, of: list[FunctionSummary]) -> list[str]:
    calls = sum(one.calls for one in of)
    # A function with programs and no calls is called in a way that is not counted.
    counted = [one for one in of if one.calls or not one.compiles]
    known = [one.hits for one in counted if one.hits is not None]
    return [
        name,
        f"{calls:,.0f}" if known else UNKNOWN,
        share(sum(known), calls) if known and calls else UNKNOWN,
        f"{sum(one.compiles for one in of):,.0f}",
        f"{sum(one.recompiles for one in of):,.0f}",
        duration(sum(one.compile_seconds for one in of)),
    ]


def _errors(one: ProcessView, width: int) -> list[Line]:
    layout = [Column("ERRORS", right=False), Column("KIND", 24), Column("COUNT", 10)]
    cells = [[of.function, of.kind, f"{of.count:,.0f}"] for of in one.summary.errors]
    return _table(layout, cells, width)


def _devices(one: ProcessView, width: int) -> list[Line]:
    layout = [
        Column("DEVICES", right=False),
        Column("IN USE", 12),
        Column("LIMIT", 12),
        Column("LIVE ARRAYS", 13),
        Column("SIZE", 12),
    ]
    cells = [
        [
            f"{of.device} {of.kind}".strip(),
            _bytes(of.memory_in_use),
            _bytes(of.memory_limit),
            UNKNOWN if of.live_arrays is None else f"{of.live_arrays:,.0f}",
            _bytes(of.live_array_bytes),
        ]
        for of in one.summary.devices
    ]
    return _table(layout, cells, width)


def _table(layout: list[Column], cells: list[list[str]], width: int) -> list[Line]:
    if not cells:
        return []
    # The first column keeps room for a name.
    while len(layout) > 2 and sum(one.size for one in layout) + 18 > width:  # noqa: PLR2004
        del layout[1]
        cells = [[row[0], *row[2:]] for row in cells]
    return rows(layout, cells, width)


def _rate(value: float | None) -> str:
    return UNKNOWN if value is None else amount(value)


def _share(value: float | None) -> str:
    return UNKNOWN if value is None else share(value, 1)


def _seconds(value: float | None) -> str:
    return UNKNOWN if value is None else duration(value)


def _bytes(value: float | None) -> str:
    return UNKNOWN if value is None else size(value)
