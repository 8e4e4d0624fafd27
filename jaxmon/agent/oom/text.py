"""Renders an out-of-memory report as text."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from jaxmon import interrupts
from jaxmon.host.formats.layout import size


_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
# Bytes on a CPU, "1.50GiB" on a GPU, "12.50G" on a TPU.
_ASKED = re.compile(
    r"(?:allocat\w+|request for)\s+([\d.]+)\s*([kmgtp]?)(?:i?b\b|bytes\b|\b)",
    re.IGNORECASE,
)
_SHARE_OF_LINE = 0.5
_NEARLY_FULL = 0.9
_WIDTH = 78


def requested_bytes(text: str) -> int | None:
    """Return the size in bytes of the failed allocation, if *text* contains it."""
    found = _ASKED.search(text)
    if found is None:
        return None
    with interrupts.expected(ValueError):
        return int(float(found[1]) * 1024 ** _UNITS[found[2].lower()])
    return None


def advice(report: Mapping[str, Any]) -> list[str]:
    """Return advice, the most likely to help first."""
    return [*_on_devices(report), *_on_lines(report), *_on_program(report), *_always()]


def render(report: Mapping[str, Any]) -> str:
    """Return *report* as text of about 100 columns at most."""
    return "\n".join(_lines(report)) + "\n"


# --- advice ----------------------------------------------------------------------


def _on_devices(report: Mapping[str, Any]) -> Iterator[str]:
    asked = requested_bytes(str(_in(report, "failure").get("text", "")))
    for device in _rows(report, "devices"):
        memory = _in(device, "memory")
        limit, used = memory.get("bytes_limit"), memory.get("bytes_in_use")
        if not limit or used is None:
            continue
        name, free = f"device {device.get('device')}", limit - used
        if asked is not None and asked > limit:
            yield (
                f"The allocation of {size(asked)} is larger than {name} "
                f"({size(limit)}): freeing memory cannot help. Shard it or make it "
                "smaller."
            )
        elif asked is not None and asked < free:
            room = _room(memory)
            yield (
                (
                    f"{name} had {size(free)} free, more than the {size(asked)} "
                    "requested, "
                )
                + (
                    f"but at most {size(room)} contiguous: its memory is fragmented"
                    if room is not None and room < asked
                    else "so its memory is fragmented, or a different device failed"
                )
                + ". Restarting helps temporarily; allocate large arrays first."
            )
        elif used / limit > _NEARLY_FULL:
            yield (
                f"{name} was {used / limit:.0%} full when the allocation failed: "
                "see what holds memory, below."
            )
    host = _in(report, "host")
    pairs = (
        ("virtual_limit", "virtual", "the address space limit (ulimit -v)"),
        ("cgroup_limit", "cgroup", "the container's or service's memory limit"),
    )
    for limit_name, used_name, what in pairs:
        limit, used = host.get(limit_name), host.get(used_name)
        if limit and used and used / limit > _NEARLY_FULL:
            yield (
                f"Host memory is low: {size(used)} of {size(limit)}, {what}. Raise "
                "the limit or keep less data on the host."
            )


def _room(memory: Mapping[str, Any]) -> int | None:
    """Return the bytes of the largest array that would fit, if that is known."""
    block, pool = memory.get("largest_free_block_bytes"), memory.get("pool_bytes")
    if not block:  # always 0 in older releases
        return None
    growth = memory["bytes_limit"] - pool if pool is not None else 0
    return int(max(block, growth))


def _on_lines(report: Mapping[str, Any]) -> Iterator[str]:
    rows = _rows(_in(report, "lines"), "lines")
    total = sum(row.get("bytes", 0) for row in rows)
    if rows and total:
        first = rows[0]
        share = first.get("bytes", 0) / total
        if share > _SHARE_OF_LINE:
            yield (
                f"{_place(first)} holds {size(first['bytes'])}, {share:.0%} of the "
                "memory listed below: does it keep results it no longer needs?"
            )
    for event in _rows(report, "leaks"):
        yield f"A leak was suspected earlier: {_first(event.get('message'))}".rstrip(
            ":"
        )


def _on_program(report: Mapping[str, Any]) -> Iterator[str]:
    asked = _in(report, "asked")
    temporary, output = asked.get("temporary_bytes"), asked.get("output_bytes")
    if temporary and temporary > (output or 0):
        yield (
            f"The program of {asked.get('function')} needs {size(temporary)} of "
            "temporary memory, besides arguments and outputs: rematerialise "
            "(jax.checkpoint) or reduce the batch size."
        )
    elif output:
        yield (
            f"The program of {asked.get('function')} produces {size(output)} of "
            "outputs: donate the inputs they replace (donate_argnums)."
        )
    if _in(report, "failure").get("stage") in ("trace", "lower", "compile"):
        yield (
            "Memory ran out while the program was being compiled: pass large "
            "arrays as arguments instead of closing over them; XLA folds and "
            "copies constants."
        )


def _always() -> Iterator[str]:
    yield (
        "If all previous steps succeeded: reduce the batch size, shorten inputs, "
        "donate arguments (donate_argnums) or shard parameters."
    )


# --- text ------------------------------------------------------------------------


def _lines(report: Mapping[str, Any]) -> Iterator[str]:
    failure = _in(report, "failure")
    yield f"{failure.get('function')} ran out of memory"
    yield ""
    yield f"  time      {report.get('time')}"
    yield f"  process   {report.get('program')}, pid {report.get('pid')}"
    yield f"  versions  {_pairs(_in(report, 'versions'))}"
    yield f"  stage     {failure.get('stage') or 'unknown'}"
    yield f"  at        {failure.get('where') or 'unknown'}"
    if skipped := report.get("failures_without_report"):
        yield f"  before    {skipped} earlier failures without a report"
    yield ""
    yield f"{failure.get('type')}:"
    for line in str(failure.get("message")).splitlines():
        yield f"  {line}"
    advised = [_wrapped(row) for row in _rows(report, "advice")]
    yield from _section("What to do", [line for lines in advised for line in lines])
    yield from _section("Devices", list(_device_lines(report)))
    yield from _section("Host", [_pairs(_sizes(_in(report, "host")))])
    yield from _section("Live arrays", list(_array_lines(report)))
    yield from _section("Source lines that hold memory", list(_memory_lines(report)))
    yield from _section("Programs", list(_program_lines(report)))
    for name in ("compiles", "recompiles", "leaks"):
        messages = [
            f"{event.get('function') or ''} {_first(event.get('message'))}".strip()
            for event in _rows(report, name)
        ]
        yield from _section(f"Last {name}", messages)
    dump = str(failure.get("text", ""))
    if len(dump) > len(str(failure.get("message"))) + 200:
        yield from _section("Full message", dump.splitlines())


def _section(title: str, lines: list[str]) -> Iterator[str]:
    if lines:
        yield ""
        yield title
        for line in lines:
            yield f"  {line}"


def _wrapped(sentence: str) -> list[str]:
    return textwrap.wrap(
        sentence,
        _WIDTH,
        initial_indent="- ",
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _device_lines(report: Mapping[str, Any]) -> Iterator[str]:
    for device in _rows(report, "devices"):
        memory = _in(device, "memory")
        figures = _pairs(_sizes(memory)) if memory else "no allocator statistics"
        yield f"{device.get('device')} {device.get('kind')}: {figures}"


def _array_lines(report: Mapping[str, Any]) -> Iterator[str]:
    found = _in(report, "live_arrays")
    if not found.get("arrays"):
        return
    part = "" if found["added_up"] == found["arrays"] else f" of {found['arrays']:,}"
    line = f"{found['added_up']:,}{part} arrays, {size(found['bytes'])}"
    if offloaded := found.get("offloaded_bytes"):
        line += f"; {size(offloaded)} more in host memory"
    yield line
    for row in _rows(found, "by_dtype"):
        yield f"{size(row['bytes']):>12} {row['arrays']:>9,} {row['dtype']}"


def _memory_lines(report: Mapping[str, Any]) -> Iterator[str]:
    for row in _rows(_in(report, "lines"), "lines"):
        if row.get("bytes"):  # unknown for programs on some platforms
            figures = f"{size(row['bytes']):>12} {row.get('arrays', 0):>9,}"
            yield f"{figures} {_place(row)}"


def _program_lines(report: Mapping[str, Any]) -> Iterator[str]:
    if asked := _in(report, "asked"):
        yield f"possible requester: {asked.get('function')}: {_pairs(_sizes(asked))}"
    for row in _rows(report, "programs"):
        yield f"{row.get('function')}: {_pairs(_sizes(row))}"


def _place(row: Mapping[str, Any]) -> str:
    return f"{row.get('file')}:{row.get('line')} ({row.get('function')})"


def _sizes(figures: Mapping[str, Any]) -> dict[str, str]:
    """Return the sizes in readable form, without the repeated words."""
    return {
        name.replace("_bytes", "").replace("bytes_", "").replace("_", " "): size(value)
        for name, value in figures.items()
        if isinstance(value, int)
        and not isinstance(value, bool)
        and ("bytes" in name or "size" in name or name in _HOST)
    }


_HOST = ("resident", "virtual", "virtual_limit", "available", "cgroup", "cgroup_limit")


def _pairs(found: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in found.items())


def _first(message: Any) -> str:
    return str(message or "").partition("\n")[0]


def _in(outer: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = outer.get(name)
    return found if isinstance(found, Mapping) else {}


def _rows(outer: Mapping[str, Any], name: str) -> list[Any]:
    found = outer.get(name)
    return found if isinstance(found, list) else []
