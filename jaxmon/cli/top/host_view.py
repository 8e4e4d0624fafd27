"""The first screen: whether users are all right, processes, accelerators."""

from __future__ import annotations

import time
from collections.abc import Sequence

from jaxmon.cli.host import ProcessView, rate
from jaxmon.cli.top.lines import (
    BAD,
    BLANK,
    CHOSEN,
    OF_STATE,
    QUIET,
    STRONG,
    Line,
    apart,
    bar,
    fitted,
    line,
    styled,
)
from jaxmon.cli.top.reader import Seen
from jaxmon.cli.top.state import KEYS, State
from jaxmon.facts.status import AcceleratorSummary, Answer, DeviceSummary
from jaxmon.host.formats.layout import (
    ELLIPSIS,
    UNKNOWN,
    Column,
    ago,
    clean,
    columns,
    counted,
    duration,
    share,
    shortened,
    size,
    wrapped,
)


_MOST_REASONS = 3
_MOST_ACCELERATORS = 8
_LOW = 8
_BAR = 10
_BUSY = "BUSY"
# What an accelerator's line has behind the name.
_BESIDE_NAME, _WITH_POWER = 58, 62
_LEAST_NAME, _MOST_NAME = 8, 40
_INDENT = " " * 8
_PROCESSES = (
    Column("WORKER", 7, right=False),
    Column("PID", 8),
    Column("STATE", 9),
    Column("RATE", 13),
    Column("ERRORS", 7),
    Column("P95", 8),
    Column("COMPILES", 9),
    Column("MEMORY", 9),
)
# What a narrow terminal omits, first to last.
_DISPENSABLE = ("PID", "MEMORY", "COMPILES", "STATE", "P95", "ERRORS")
_LEAST_COMMAND = 12
# What orders are about that have another name than their column.
_COLUMNS = {"requests": "RATE", "steps": "RATE"}


def host_view(
    seen: Seen, state: State, *, name: str, width: int, height: int, plain: bool
) -> list[Line]:
    """Return the lines of the first screen, *height* of them at most."""
    answer = answer_lines(seen.summary.answer, width, most=_MOST_REASONS)
    above = [
        _title(seen, state, name, width),
        *answer[: max(height // 4, 1)],
        *_trouble(seen, width),
        *([BLANK] if height > _LOW else []),
    ]
    room = height - len(above) - 1
    # A third, or all that processes leave.
    left = room - 2 * len(seen.processes) - 3
    below = _accelerators(seen, width, most=max(room // 3 - 1, left, 1), plain=plain)
    listed = _processes(seen, state, width, room - len(below))
    blank = [BLANK] * (room - len(below) - len(listed))
    lines = [*above, *listed, *blank, *below]
    return [*lines[: height - 1], footer(state, width)]


def answer_lines(answer: Answer, width: int, *, most: int) -> list[Line]:
    """Return whether users are all right, and at most *most* further reasons."""
    colour = OF_STATE[answer.state]
    lines = styled(wrapped(clean(answer.text), width), f"{STRONG} {colour}")
    further = answer.reasons[1:]
    if because := "".join(one.because for one in answer.reasons[:1]):
        lines += styled(wrapped(clean(because), width, first="  ", rest="  "))
    for reason in further[:most]:
        text = shortened(clean(reason.text), width - 4)
        lines.append(line(("  · ", QUIET), (text, OF_STATE[reason.state])))
    if (rest := len(further) - most) > 0:
        lines.append(line((f"  · {rest} more", QUIET)))
    if answer.state == "unknown":
        lines += styled(wrapped(answer.advice, width), QUIET)
    return lines


def help_view(width: int, height: int) -> list[Line]:
    """Return the keys, and what the columns say."""
    lines = [line(("Keys", STRONG)), BLANK]
    lines += [line((f"  {keys:<24}", STRONG), what) for keys, what in KEYS]
    text = (
        "Rates, errors, P95 and compiles are of the last minute. P95 is that of the "
        "slowest route, or else of the slowest loop. Memory is that of the devices, or "
        "else of the process on its host. A process that is stuck does not respond, or "
        "its loop or a compile does not get on."
    )
    lines += [BLANK, *styled(wrapped(text, width))]
    return [*lines[: height - 1], *[BLANK] * (height - 1 - len(lines)), _hint(width)]


def footer(state: State, width: int) -> Line:
    """Return the most important keys; those that have no room are omitted."""
    if state.opened:
        keys = ["Esc back", "↑↓ scroll", "n p next, previous", "? help", "q quit"]
    else:
        order = state.order + (", reversed" if state.reverse else "")
        keys = ["Enter open", f"s sort: {order}", "Space pause", "? help", "q quit"]
    while len(keys) > 1 and columns("  ".join(keys)) > width:
        del keys[-3 if len(keys) > 2 else 0]  # noqa: PLR2004 - help and quit stay
    return line((fitted("   ".join(keys), width), CHOSEN))


def title(left: str, seen: Seen, state: State, width: int) -> Line:
    """Return the first line, with the time of what is shown."""
    now = time.strftime("%H:%M:%S", time.localtime(seen.time)) if seen.time else ""
    if state.paused:
        now = f"paused at {now}"
    shown = shortened(clean(left), max(width - len(now) - 2, 1))
    return apart(line((shown, STRONG)), now, width)


def _title(seen: Seen, state: State, name: str, width: int) -> Line:
    many = counted(len(seen.processes), "process")
    return title(f"jaxmon top · {name} · {many}", seen, state, width)


def _trouble(seen: Seen, width: int) -> list[Line]:
    if seen.trouble:
        since = f" Shown is what was read {ago(time.time() - seen.time)}."
        text = f"Cannot read: {seen.trouble}.{since if seen.time else ''}"
        return styled(wrapped(clean(text), width), BAD)
    if not seen.time:
        return [line(("reading ...", QUIET))]
    return []


def _processes(seen: Seen, state: State, width: int, room: int) -> list[Line]:
    """Return a line for each process, and what is wrong with it if that fits."""
    found = state.sorted(seen.processes)
    if not found:
        text = (
            "Start a program with `jaxmon run PROGRAM`, or call jaxmon.instrument() in "
            "it; --run-dir is the directory where it listens."
        )
        return styled(wrapped(text, width), QUIET) if seen.time else []
    layout = _fitting(found, width)
    command = max(width - sum(one.size for one in layout) - 1, 1)
    place = state.place(found)
    state.chosen, state.page = found[place].number, max(room - 2, 1)
    roomy = 2 * len(found) + 1 <= room
    lines = [_heading(layout, state)]
    most = max(room - (1 if roomy else 2), 1)
    first = 0 if roomy else min(max(place - most // 2, 0), max(len(found) - most, 0))
    for one in found[first:] if roomy else found[first : first + most]:
        chosen = one.number == state.chosen
        lines.append(_process(one, layout, command, chosen=chosen))
        if roomy:
            lines.append(_verdict(one, width))
    if not roomy:
        lines.append(_verdict(found[place], width))
    return lines


def _heading(layout: Sequence[Column], state: State) -> Line:
    spans = []
    for one in layout:
        sorts = _COLUMNS.get(state.order, state.order.upper()) == one.heading
        mark = "*" if sorts else ""
        text = f"{mark}{one.heading}"
        padded = text.rjust(one.size) if one.right else text.ljust(one.size)
        spans.append((padded, STRONG))
    return line(*spans, (" COMMAND", STRONG))


def _process(
    one: ProcessView, layout: Sequence[Column], room: int, *, chosen: bool
) -> Line:
    used = one.memory[0]
    pid = one.agent.pid
    cells = {
        "WORKER": one.number,
        "PID": UNKNOWN if pid is None else str(pid),
        "STATE": one.condition,
        "RATE": rate(one),
        "ERRORS": UNKNOWN if one.error_ratio is None else share(one.error_ratio, 1),
        "P95": UNKNOWN if one.p95 is None else duration(one.p95),
        "COMPILES": UNKNOWN if one.compiles is None else f"{one.compiles:,.0f}",
        "MEMORY": UNKNOWN if used is None else size(used),
    }
    text = ""
    for column in layout:
        cell = shortened(clean(cells[column.heading]), column.size - 1)
        pad = " " * (column.size - columns(cell))
        text += pad + cell if column.right else cell + pad
    text += " " + fitted(_named(one.label or UNKNOWN, room), room)
    colour = "" if one.condition == "running" else BAD
    return line((text, CHOSEN if chosen else colour))


def _named(label: str, room: int) -> str:
    """Return the beginning of *label*; a name in brackets at its end stays."""
    label = clean(label)
    if columns(label) <= room or label.endswith(")"):
        return label
    return label[: max(room - 1, 0)] + ELLIPSIS


def _verdict(one: ProcessView, width: int) -> Line:
    # What is wrong, its numbers show.
    reason = one.because or one.verdict
    text = shortened(clean(reason), width - len(_INDENT))
    return line(_INDENT, (text, OF_STATE[one.state] or QUIET))


def _fitting(found: Sequence[ProcessView], width: int) -> Sequence[Column]:
    """
    Return the columns that leave room for the command; without the states if all run.
    """
    layout = list(_PROCESSES)
    if all(one.condition == "running" for one in found):
        layout = [one for one in layout if one.heading != "STATE"]
    for heading in _DISPENSABLE:
        if sum(one.size for one in layout) + _LEAST_COMMAND <= width:
            break
        layout = [one for one in layout if one.heading != heading]
    return layout


def _accelerators(seen: Seen, width: int, *, most: int, plain: bool) -> list[Line]:
    """Return a line with bars for each accelerator, or else for each device of JAX."""
    name = min(max(width - _BESIDE_NAME, _LEAST_NAME), _MOST_NAME)
    found = [
        _accelerator(one, name, plain=plain, powers=width >= name + _WITH_POWER)
        for one in seen.summary.accelerators
    ]
    heading = "ACCELERATOR"
    if not found:
        heading = "DEVICE"
        found = [
            _device(one, name, plain=plain)
            for one in seen.summary.devices
            if one.memory_in_use is not None
        ]
    if not found:
        return []
    above = line((f"{heading:<{name}}  {_BUSY:<{_BAR + 6}}  MEMORY", STRONG))
    most = min(most, _MOST_ACCELERATORS)
    more = [line((f"{len(found) - most} more", QUIET))] if len(found) > most else []
    return [above, *found[:most], *more]


def _accelerator(
    one: AcceleratorSummary, name: int, *, plain: bool, powers: bool
) -> Line:
    first = fitted(f"{one.index} {one.model}", name)
    if one.up is False:
        return line((f"{first}  does not respond to the driver", BAD))
    heat, power, busy = one.temperature, one.power, one.utilization
    return (
        *line(f"{first}  "),
        bar(busy, _BAR, plain=plain),
        *line(f"{UNKNOWN if busy is None else share(busy, 1):>6}  "),
        *_memory(one.memory_used, one.memory_size, plain=plain),
        *line("" if heat is None else f"  {heat:.0f} °C"),
        *line("" if power is None or not powers else f"  {power:.0f} W"),
    )


def _device(one: DeviceSummary, name: int, *, plain: bool) -> Line:
    first = fitted(f"worker {one.worker} · {one.device} {one.kind}", name)
    memory = _memory(one.memory_in_use, one.memory_limit, plain=plain)
    return (*line(f"{first}  {UNKNOWN:<{_BAR + 6}}  "), *memory)


def _memory(used: float | None, whole: float | None, *, plain: bool) -> Line:
    if used is None:
        return line(UNKNOWN)
    if not whole:
        return line(size(used))
    text = f" {size(used)}/{size(whole)}"
    return (bar(used / whole, _BAR, plain=plain), *line(f"{text:<18}"))


def _hint(width: int) -> Line:
    return line((fitted("any key: back   q quit", width), CHOSEN))
