"""Renders an out-of-memory report as text."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping

from jaxmon import interrupts
from jaxmon.facts.events import OomReport
from jaxmon.facts.memory import Device
from jaxmon.facts.record import Fact
from jaxmon.host.formats.layout import size


_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
# Bytes on a CPU, "1.50GiB" on a GPU, "12.50G" on a TPU.
_ASKED = re.compile(
    r"(?:allocat\w+|request for)\s+([\d.]+)\s*([kmgtp]?)(?:i?b\b|bytes\b|\b)",
    re.IGNORECASE,
)
_FRACTION_OF_LINE = 0.5
_NEARLY_FULL = 0.9
_WIDTH = 78
# Of a device, of the host, and of a program.
_SIZE = (
    "in_use|peak|limit|reserved|pool|largest_.*|resident|available|virtual.*|cgroup.*"
    "|(argument|output|temporary|peak|code)_bytes"
)
_ALWAYS = (
    "If all previous steps succeeded: reduce the batch size, shorten inputs, "
    "donate arguments (donate_argnums) or shard parameters."
)


def requested_bytes(text: str) -> int | None:
    """Return the size in bytes of the failed allocation, if *text* contains it."""
    if found := _ASKED.search(text):
        with interrupts.expected(ValueError):
            return int(float(found[1]) * 1024 ** _UNITS[found[2].lower()])
    return None


def advice(report: OomReport) -> tuple[str, ...]:
    """Return advice, the most likely to help first."""
    return (*_on_devices(report), *_on_lines(report), *_on_program(report), _ALWAYS)


def render(report: OomReport) -> str:
    """Return *report* as text of about 100 columns at most."""
    return "\n".join(_lines(report)) + "\n"


def _on_devices(report: OomReport) -> Iterator[str]:
    asked = requested_bytes(report.failure.text)
    for device in report.devices:
        limit, used = device.limit, device.in_use
        if not limit or used is None:
            continue
        name, free = f"device {device.device}", limit - used
        if asked is not None and asked > limit:
            yield (
                f"The allocation of {size(asked)} is larger than {name} "
                f"({size(limit)}): freeing memory cannot help. Shard it or make it "
                "smaller."
            )
        elif asked is not None and asked < free:
            room = _room(device)
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
    host = report.host
    for limit, used, what in (
        (host.virtual_limit, host.virtual, "the address space limit (ulimit -v)"),
        (host.cgroup_limit, host.cgroup, "the container's or service's memory limit"),
    ):
        if limit and used and used / limit > _NEARLY_FULL:
            yield (
                f"Host memory is low: {size(used)} of {size(limit)}, {what}. Raise "
                "the limit or keep less data on the host."
            )


def _room(device: Device) -> float | None:
    """Return the bytes of the largest array that would fit, if that is known."""
    block, pool, limit = device.largest_free_block, device.pool, device.limit
    if not block:  # always 0 in older releases
        return None
    return block if pool is None or limit is None else max(block, limit - pool)


def _on_lines(report: OomReport) -> Iterator[str]:
    total = sum(line.bytes for line in report.lines.lines)
    for line in report.lines.lines[:1]:
        if total and (fraction := line.bytes / total) > _FRACTION_OF_LINE:
            yield (
                f"{line} holds {size(line.bytes)}, {fraction:.0%} of the "
                "memory listed below: does it keep results it no longer needs?"
            )
    for event in report.leaks:
        first = event.message.partition("\n")[0]
        yield f"A leak was suspected earlier: {first}".rstrip(":")


def _on_program(report: OomReport) -> Iterator[str]:
    for name, program in report.asked.items():
        temporary, output = program.temporary_bytes, program.output_bytes
        if temporary and temporary > (output or 0):
            yield (
                f"The program of {name} needs {size(temporary)} of temporary memory, "
                "besides arguments and outputs: rematerialise (jax.checkpoint) or "
                "reduce the batch size."
            )
        elif output:
            yield (
                f"The program of {name} produces {size(output)} of outputs: donate "
                "the inputs they replace (donate_argnums)."
            )
    if report.failure.stage in ("trace", "lower", "compile"):
        yield (
            "Memory ran out while the program was being compiled: pass large "
            "arrays as arguments instead of closing over them; XLA folds and "
            "copies constants."
        )


def _lines(report: OomReport) -> Iterator[str]:
    failure = report.failure
    yield f"{failure.function} ran out of memory\n"
    yield f"  time      {report.time}"
    yield f"  process   {report.program}, pid {report.pid}"
    yield f"  versions  {_pairs(report.versions)}"
    yield f"  stage     {failure.stage or 'unknown'}"
    yield f"  at        {failure.where or 'unknown'}"
    if skipped := report.failures_without_report:
        yield f"  before    {skipped} earlier failures without a report"
    yield f"\n{failure.type}:"
    yield from [f"  {line}" for line in failure.message.splitlines()]
    wrapper = textwrap.TextWrapper(
        _WIDTH, "- ", "  ", break_long_words=False, break_on_hyphens=False
    )
    advised = [line for sentence in report.advice for line in wrapper.wrap(sentence)]
    yield from _section("What to do", advised)
    yield from _section("Devices", _device_lines(report))
    yield from _section("Host", [_sizes(report.host)])
    yield from _section("Live arrays", _array_lines(report))
    yield from _section("Source lines that hold memory", _memory_lines(report))
    yield from _section("Programs", _program_lines(report))
    for name in ("compiles", "recompiles", "leaks"):
        messages = [
            f"{event.function} {event.message}".partition("\n")[0].strip()
            for event in getattr(report, name)
        ]
        yield from _section(f"Last {name}", messages)
    missing = [f"{name}: {why}" for name, why in report.unavailable.items()]
    yield from _section("Unavailable", missing)
    if len(failure.text) > len(failure.message) + 200:
        yield from _section("Full message", failure.text.splitlines())


def _section(title: str, lines: Iterable[str]) -> Iterator[str]:
    indented = [f"  {line}" for line in lines]
    if indented:
        yield from ("", title, *indented)


def _device_lines(report: OomReport) -> Iterator[str]:
    for device in report.devices:
        sizes = _sizes(device) or "no allocator statistics"
        yield f"{device.device} {device.kind}: {sizes}"


def _array_lines(report: OomReport) -> Iterator[str]:
    found, more = report.live_arrays, ""
    if found.arrays:
        part = "" if found.added_up == found.arrays else f" of {found.arrays:,}"
        if found.offloaded_bytes:
            more = f"; {size(found.offloaded_bytes)} more in host memory"
        yield f"{found.added_up:,}{part} arrays, {size(found.bytes)}{more}"
    for dtype, of in found.by_dtype.items():
        yield f"{size(of.bytes):>12} {of.arrays:>9,} {dtype}"


def _memory_lines(report: OomReport) -> Iterator[str]:
    for line in report.lines.lines:
        if line.bytes:  # unknown for programs on some platforms
            yield f"{size(line.bytes):>12} {line.arrays:>9,} {line}"


def _program_lines(report: OomReport) -> Iterator[str]:
    for what, programs in ("possible requester: ", report.asked), ("", report.programs):
        for name, program in programs.items():
            yield f"{what}{name}: {_sizes(program)}"


def _sizes(fact: Fact) -> str:
    """Return the sizes in *fact*, without the repeated words."""
    return _pairs(
        {
            name.removesuffix("_bytes").replace("_", " "): size(value)
            for name, value in vars(fact).items()
            if value is not None and re.fullmatch(_SIZE, name)
        }
    )


def _pairs(found: Mapping[str, str | None]) -> str:
    return ", ".join(f"{name} {value}" for name, value in found.items())
