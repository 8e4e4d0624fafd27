"""The screens: the host with processes and accelerators, a process, and the keys."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from jaxmon.cli.host import ProcessView
from jaxmon.cli.top.state import HELP, KEYS, Seen, State
from jaxmon.cli.top.terminal import (
    BAD,
    BLANK,
    CHOSEN,
    DOUBTFUL,
    OF_STATE,
    QUIET,
    STRONG,
    Line,
    bar,
    fitted,
    line,
    styled,
)
from jaxmon.facts import status
from jaxmon.host.formats.layout import (
    ELLIPSIS,
    INDENT,
    UNKNOWN,
    Column,
    ago,
    amount,
    brief,
    clean,
    columns,
    counted,
    duration,
    estimate,
    shortened,
    size,
    table,
    wrapped,
)
from jaxmon.screens.section import (
    Fields,
    T,
    fitting,
    number,
    ratio,
    shown,
    tabulated,
    whole,
    words,
)
from jaxmon.screens.status import totals
from jaxmon.symptoms.findings import NOTHING


_MOST_REASONS, _MOST_REASONS_OPENED = 3, 5
_MOST_ACCELERATORS = 8
_MOST_FUNCTIONS, _MOST_EVIDENCE = 20, 3
_LOW = 8
# On a terminal of so many columns, texts are whole and tables as wide as they need.
_WIDE = 120
_BAR = 10
_BUSY = "BUSY"
# What an accelerator's line has behind the name.
_BESIDE_NAME, _WITH_POWER = 58, 62
_LEAST_NAME, _MOST_NAME = 8, 40
_INDENT = " " * 8


def _percentile(seconds: float) -> str:
    """Return the estimate of one, as `brief` as it fits into a column."""
    return " ".join(estimate(seconds).split()[:2])


_PROCESSES: Fields[ProcessView] = (
    words("WORKER", 7, lambda process: process.number),
    words("RANK", 6, lambda process: process.job_rank),
    number("PID", 8, lambda process: process.agent.pid, str),
    (Column("STATE", 9), lambda process: process.condition),
    (Column("RATE", 16), lambda process: process.rate),
    number("ERRORS", 7, lambda process: process.error_ratio, ratio),
    number("P95", 8, lambda process: process.p95, _percentile),
    number("COMPILES", 9, lambda process: process.compiles, whole),
    number("MEMORY", 10, lambda process: process.memory[0], size),
)
# What a narrow terminal omits, first to last.
_DISPENSABLE = ("PID", "MEMORY", "COMPILES", "STATE", "P95", "ERRORS")
_LEAST_COMMAND = 12
# Room for a name in a table of which it is the first column.
_NAME = 18
# What orders are about that have another name than their column.
_COLUMNS = {"requests": "RATE", "steps": "RATE"}
_START = (
    "Start a program with `jaxmon run PROGRAM`, or call jaxmon.instrument() in it; "
    "--run-dir is the directory where it listens."
)


class _Functions(NamedTuple):
    """A row of the table of functions: one, or several that have no row each."""

    name: str
    total: status.Totals
    calls: float | None
    hit_rate: float | None


_LATENCY = status.Latency()
_REQUESTS: Fields[status.RequestSummary] = (
    words("REQUESTS", 0, lambda route: route.route),
    number("A SECOND", 10, lambda route: route.rate, amount),
    number("ERRORS", 9, lambda route: route.error_ratio, ratio),
    number("P50", 9, lambda route: (route.latency or _LATENCY).p50, _percentile),
    number("P95", 9, lambda route: (route.latency or _LATENCY).p95, _percentile),
    number("P99", 9, lambda route: (route.latency or _LATENCY).p99, _percentile),
    number("COLD", 8, lambda route: route.cold_ratio, ratio),
    number("NOW", 6, lambda route: route.in_progress, whole),
)
_STEPS: Fields[status.LoopSummary] = (
    words("STEPS", 0, lambda loop: loop.loop),
    number("A SECOND", 10, lambda loop: loop.rate, amount),
    number("MEAN", 9, lambda loop: loop.mean, brief),
    number("P95", 9, lambda loop: loop.p95, _percentile),
    number("DATA WAIT", 11, lambda loop: loop.data_wait_ratio, ratio),
    number("GOODPUT", 8, lambda loop: loop.goodput, ratio),
    (Column("LAST", 15), lambda loop: "ended" if loop.age is None else ago(loop.age)),
)
_QUEUES: Fields[status.QueueSummary] = (
    words("QUEUES", 0, lambda queue: queue.queue),
    number("DEPTH", 10, lambda queue: queue.depth, whole),
)
_BATCHES: Fields[status.BatchSummary] = (
    words("BATCHES", 0, lambda batch: batch.route),
    number("A SECOND", 10, lambda batch: batch.rate, amount),
    number("FILL", 9, lambda batch: batch.fill, ratio),
)
_FUNCTIONS: Fields[_Functions] = (
    words("FUNCTIONS", 0, lambda row: row.name),
    number("CALLS", 11, lambda row: row.calls, whole),
    number("HIT RATE", 10, lambda row: row.hit_rate, ratio),
    number("COMPILES", 10, lambda row: row.total.compiles, whole),
    number("RECOMPILES", 12, lambda row: row.total.recompiles, whole),
    number("COMPILE TIME", 14, lambda row: row.total.compile_seconds, duration),
)
_ERRORS: Fields[status.ErrorSummary] = (
    words("ERRORS", 0, lambda error: error.function),
    (Column("KIND", 24), lambda error: error.kind),
    number("COUNT", 10, lambda error: error.count, whole),
)
_DEVICES: Fields[status.DeviceSummary] = (
    words("DEVICES", 0, lambda device: f"{device.device} {device.kind}".strip()),
    number("IN USE", 12, lambda device: device.memory_in_use, size),
    number("LIMIT", 12, lambda device: device.memory_limit, size),
    number("LIVE ARRAYS", 13, lambda device: device.live_arrays, whole),
    number("SIZE", 12, lambda device: device.live_array_bytes, size),
)


def host_view(
    seen: Seen, state: State, *, name: str, width: int, height: int
) -> list[Line]:
    """Return the lines of the first screen, *height* of them at most."""
    answer = _answer(seen.summary.answer, width, most=_MOST_REASONS)
    title = f"jaxmon top · {name} · {counted(len(seen.processes), 'process')}"
    above = [
        _title(title, seen, state, width),
        *answer[: max(height // 4, 1)],
        *_trouble(seen, width),
        *([BLANK] if height > _LOW else []),
    ]
    room = height - len(above) - 1
    # A third, or all that processes leave.
    left = room - 2 * len(seen.processes) - 3
    below = _accelerators(seen, width, most=max(room // 3 - 1, left, 1))
    listed = _processes(seen, state, width, room - len(below))
    blank = [BLANK] * (room - len(below) - len(listed))
    lines = [*above, *listed, *blank, *below]
    return [*lines[: height - 1], _footer(state, width)]


def help_view(width: int, height: int) -> list[Line]:
    """Return the keys, and what the columns say."""
    lines = [line(("Keys", STRONG)), BLANK]
    lines += [line((f"  {keys:<24}", STRONG), what) for keys, what in KEYS]
    lines += [BLANK, *styled(wrapped(HELP, width))]
    hint = line((fitted("any key: back   q quit", width), CHOSEN))
    return [*lines[: height - 1], *[BLANK] * (height - 1 - len(lines)), hint]


def process_view(
    last: ProcessView | None, seen: Seen, state: State, *, width: int, height: int
) -> list[Line]:
    """Return the lines of a process, *height* of them at most."""
    if last is None:
        lines = [_title("jaxmon top", seen, state, width)]
        return [*lines[: height - 1], _footer(state, width)]
    pid = "" if last.agent.pid is None else f"pid {last.agent.pid}"
    facts = f"worker {last.number}", str(last.agent.rank), pid, last.command
    head = [
        _title(" · ".join(filter(None, facts)), seen, state, width),
        *_life(last, seen, width),
    ]
    body = list(_body(last, width))
    room = max(height - len(head) - 1, 1)
    state.fit(len(body), room)
    visible = body[state.scrolled : state.scrolled + room]
    if (rest := state.most - state.scrolled) > 0:
        visible[-1] = line((f"... {rest + 1} more lines below", QUIET))
    lines = [*head, *visible, *[BLANK] * (room - len(visible))]
    return [*lines[: height - 1], _footer(state, width)]


def _title(left: str, seen: Seen, state: State, width: int) -> Line:
    now = time.strftime("%H:%M:%S", time.localtime(seen.time)) if seen.time else ""
    if state.paused:
        now = f"paused at {now}"
    text = shortened(clean(left), max(width - len(now) - 2, 1))
    gap = " " * (width - columns(text) - len(now))
    return line((text, STRONG), gap, (now if gap else "", QUIET))


def _footer(state: State, width: int) -> Line:
    if state.opened:
        keys = ["Esc back", "↑↓ scroll", "n p next, previous", "? help", "q quit"]
    else:
        order = state.order + (", reversed" if state.reverse else "")
        keys = ["Enter open", f"s sort: {order}", "Space pause", "? help", "q quit"]
    while len(keys) > 1 and columns("  ".join(keys)) > width:
        del keys[-3 if len(keys) > 2 else 0]  # noqa: PLR2004 - help and quit stay
    return line((fitted("   ".join(keys), width), CHOSEN))


def _answer(answer: status.Answer, width: int, *, most: int) -> list[Line]:
    """Return the answer, and at most *most* further reasons."""
    colour = OF_STATE[answer.state]
    text = clean(f"{answer.question} {answer.text}")
    lines = styled(wrapped(text, width), f"{STRONG} {colour}")
    first, *further = answer.reasons or (None,)
    if first is not None and first.because:
        lines += _behind(INDENT, first.because, width)
    for reason in further[:most]:
        style = OF_STATE[reason.state]
        lines += _behind("  · ", reason.text, width, style, whole=width >= _WIDE)
    if (rest := len(further) - most) > 0:
        lines.append(line((f"  · {rest} more", QUIET)))
    if answer.state == "unknown":
        lines += styled(wrapped(answer.advice, width), QUIET)
    return lines


def _trouble(seen: Seen, width: int) -> list[Line]:
    if seen.trouble:
        since = f" Shown is what was read {ago(time.time() - seen.time)}."
        text = f"Cannot read: {seen.trouble}.{since if seen.time else ''}"
        return styled(wrapped(clean(text), width), BAD)
    return [] if seen.time else [line(("reading ...", QUIET))]


def _processes(seen: Seen, state: State, width: int, room: int) -> list[Line]:
    """Return a line for each process, and what is wrong with it if that fits."""
    found = state.sorted(seen.processes)
    if not found:
        texts = chain(*(wrapped(text, width) for text in (*seen.hints, _START)))
        return styled(texts, QUIET) if seen.time else []
    fields = _fitting(found, width)
    command = max(width - sum(column.size for column, _ in fields) - 1, 1)
    place = state.place(found)
    state.chosen, state.page = found[place].number, max(room - 2, 1)
    verdicts = [_verdict(process, width, whole=width >= _WIDE) for process in found]
    if len(found) + sum(map(len, verdicts)) + 1 > room:
        verdicts = [_verdict(process, width, whole=False) for process in found]
    roomy = 2 * len(found) + 1 <= room
    most = max(room - (1 if roomy else 2), 1)
    first = 0 if roomy else min(max(place - most // 2, 0), max(len(found) - most, 0))
    sorts = _COLUMNS.get(state.order, state.order.upper())
    heading = "".join(
        _padded(column, f"{'*' * (column.heading == sorts)}{column.heading}")
        for column, _ in fields
    )
    lines = [line((f"{heading} COMMAND", STRONG))]
    for process, verdict in [*zip(found, verdicts, strict=True)][first : first + most]:
        text = "".join(
            _padded(column, shortened(clean(cell(process)), column.size - 1))
            for column, cell in fields
        )
        text += " " + fitted(_named(process.label or UNKNOWN, command), command)
        colour = "" if process.condition == "running" else BAD
        chosen = process.number == state.chosen
        lines.append(line((text, CHOSEN if chosen else colour)))
        lines += verdict if roomy else []
    return lines if roomy else [*lines, *verdicts[place]]


def _padded(column: Column, text: str) -> str:
    pad = " " * (column.size - columns(text))
    return pad + text if column.right else text + pad


def _named(label: str, room: int) -> str:
    """Return the beginning of *label*; a name in brackets at its end stays."""
    label = clean(label)
    if columns(label) <= room or label.endswith(")"):
        return label
    return label[: max(room - 1, 0)] + ELLIPSIS


def _verdict(process: ProcessView, width: int, *, whole: bool) -> list[Line]:
    # What is wrong, its numbers show.
    text, style = process.because or process.verdict, OF_STATE[process.state] or QUIET
    return _behind(_INDENT, text, width, style, whole=whole) or [BLANK]


def _behind(
    lead: str, text: str, width: int, style: str = "", *, whole: bool = True
) -> list[Line]:
    """Return *text* behind *lead*, shortened to a line unless it is to be *whole*."""
    room = width - columns(lead)
    parts = wrapped(clean(text), room) if whole else [shortened(clean(text), room)]
    leads = [lead, *[" " * columns(lead)] * len(parts)]
    return [
        line((lead, QUIET), (part, style))
        for lead, part in zip(leads, parts, strict=False)
    ]


def _fitting(found: Sequence[ProcessView], width: int) -> Fields[ProcessView]:
    runs = all(process.condition == "running" for process in found)
    silent = {"STATE" * runs, "" if any(of.job_rank for of in found) else "RANK"}
    fields = [field for field in _PROCESSES if field[0].heading not in silent]
    return fitting(fields, _DISPENSABLE, width - _LEAST_COMMAND)


def _accelerators(seen: Seen, width: int, *, most: int) -> list[Line]:
    """Return a line with bars for each accelerator, or else for each device of JAX."""
    name = min(max(width - _BESIDE_NAME, _LEAST_NAME), _MOST_NAME)
    powers = width >= name + _WITH_POWER
    heading = "ACCELERATOR"
    found = [
        _accelerator(accelerator, name, powers=powers)
        for accelerator in seen.summary.accelerators
    ]
    if not found:
        heading = "DEVICE"
        found = [
            _device(device, name)
            for device in seen.summary.devices
            if device.memory_in_use is not None
        ]
    if not found:
        return []
    above = line((f"{heading:<{name}}  {_BUSY:<{_BAR + 6}}  MEMORY", STRONG))
    most = min(most, _MOST_ACCELERATORS)
    more = [line((f"{len(found) - most} more", QUIET))] if len(found) > most else []
    return [above, *found[:most], *more]


def _accelerator(
    accelerator: status.AcceleratorSummary, name: int, *, powers: bool
) -> Line:
    first = fitted(f"{accelerator.index} {accelerator.model}", name)
    if accelerator.up is False:
        return line((f"{first}  does not respond to the driver", BAD))
    heat, power = accelerator.temperature, accelerator.power
    busy = accelerator.utilization
    return (
        *line(f"{first}  "),
        bar(busy, _BAR),
        *line(f"{shown(busy, ratio):>6}  "),
        *_memory(accelerator.memory_used, accelerator.memory_size),
        *line("" if heat is None else f"  {heat:.0f} °C"),
        *line("" if power is None or not powers else f"  {power:.0f} W"),
    )


def _device(device: status.DeviceSummary, name: int) -> Line:
    first = fitted(f"worker {device.worker} · {device.device} {device.kind}", name)
    memory = _memory(device.memory_in_use, device.memory_limit)
    return (*line(f"{first}  {UNKNOWN:<{_BAR + 6}}  "), *memory)


def _memory(used: float | None, limit: float | None) -> Line:
    if used is None or not limit:
        return line(shown(used, size))
    text = f" {size(used)}/{size(limit)}"
    return (bar(used / limit, _BAR), *line(f"{text:<18}"))


def _life(last: ProcessView, seen: Seen, width: int) -> list[Line]:
    agent, memory = last.agent, last.agent.resident_bytes
    facts = [
        "" if agent.age is None else f"started {ago(agent.age)}",
        f"release {agent.release}" if agent.release else "",
        "" if agent.jax is None else f"JAX {agent.jax}",
        agent.platform or "",
        "" if memory is None else f"{size(memory)} of host memory",
    ]
    text = shortened(clean(" · ".join(filter(None, facts))), width)
    lines = [line((text, QUIET))] if text else []
    then = time.strftime("%H:%M:%S", time.localtime(last.summary.time))
    below, colour = f" Below is what it did at {then}.", BAD
    present = {process.number: process for process in seen.processes}.get(last.number)
    if present is None:
        text, colour = f"It has ended.{below}", DOUBTFUL
    elif present.agent.died:
        text = f"It has {present.condition}.{below}"
    elif present.condition != "running":
        end = "" if present.condition.endswith("?") else "."
        text = f"It is {present.condition}{end}{below}"
    else:
        return lines
    return [*lines, *styled(wrapped(text, width), f"{STRONG} {colour}")]


def _body(process: ProcessView, width: int) -> Iterator[Line]:
    summary = process.summary
    yield from _answer(summary.answer, width, most=_MOST_REASONS_OPENED)
    users = [function for function in summary.functions if not function.internal]
    rows = [_functions(user.name, [user]) for user in users[:_MOST_FUNCTIONS]]
    if rest := users[_MOST_FUNCTIONS:]:
        rows.append(_functions(f"{len(rest)} more", rest))
    if internal := [function for function in summary.functions if function.internal]:
        rows.append(_functions(f"JAX's own ({len(internal)})", internal))
    for section in (
        _findings(process.agent, width),
        _table(_REQUESTS, summary.requests, width),
        _table(_STEPS, summary.loops, width),
        _table(_QUEUES, summary.queues, width)
        + _table(_BATCHES, summary.batches, width),
        _table(_FUNCTIONS, rows, width),
        _table(_ERRORS, summary.errors, width),
        _table(_DEVICES, summary.devices, width),
    ):
        if section:
            yield BLANK
            yield from section


def _functions(name: str, functions: Sequence[status.FunctionSummary]) -> _Functions:
    total = totals(functions)
    # A function with programs and no calls is called in a way that is not counted.
    hits = totals([some for some in functions if some.calls or not some.compiles]).hits
    if hits is None:
        return _Functions(name, total, None, None)
    rate = hits / total.calls if total.calls else None
    return _Functions(name, total, total.calls, rate)


def _findings(agent: status.AgentSummary, width: int) -> list[Line]:
    lines = [line(("FINDINGS", STRONG))]
    if agent.findings is None:
        reading = "not known" if agent.died else "being read ..."
        text = f"It {agent.trouble}." if agent.trouble else reading
        return [*lines, *_behind(INDENT, text, width, QUIET)]
    if agent.verdict:
        lines.append(line(f"  {NOTHING}"))
    for place, finding in enumerate(agent.findings, 1):
        lead = f"  {place}. "
        rest = " " * len(lead)
        colour = {"failure": BAD, "time": DOUBTFUL}.get(finding.urgency, "")
        lines += _behind(lead, finding.verdict, width, colour)
        for text in map(clean, finding.evidence[:_MOST_EVIDENCE]):
            lines += styled(wrapped(text, width, first=f"{rest}  ", rest=f"{rest}    "))
        if finding.action:
            lines += _behind(rest, f"Advice: {finding.action}", width, QUIET)
    return lines


def _table(fields: Fields[T], records: Sequence[T], width: int) -> list[Line]:
    """Return a table with a strong heading; its first column keeps room for a name."""
    if not records:
        return []
    dispensable = [column.heading for column, _ in fields[1:-1]]
    section = tabulated("", fitting(fields, dispensable, width - _NAME), records)
    cells = [[clean(cell) for cell in row] for row in section.rows]
    if width >= _WIDE:
        names = (section.columns[0].heading, *(row[0] for row in cells))
        others = sum(column.size for column in section.columns)
        width = min(width, columns(INDENT) + max(map(columns, names)) + 1 + others)
    heading, *lines = table(section.columns, cells, width=width)
    return [line((heading, STRONG)), *styled(lines)]
