"""
From an agent's debug pages to the typed model.

An older or newer agent may have made the pages, or something else may have: what is
missing or of another type than expected counts as not told. All text is made harmless
for a terminal here, so nothing behind this module has to think of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from jaxmon.report.layout import clean
from jaxmon.report.model import (
    Cache,
    Device,
    Event,
    Function,
    Json,
    Leak,
    Line,
    Looks,
    Obstacle,
    Process,
    Recompile,
    Snapshot,
    Transfer,
)


def read(overview: object, events: object = None) -> Snapshot:
    """Return what the pages ``/debug/overview`` and ``/debug/events`` tell."""
    page = _mapping(overview)
    memory, allocations = (_mapping(page.get(k)) for k in ("memory", "allocations"))
    happened = tuple(_event(one) for one in _items(_mapping(events).get("events")))
    functions = [
        _function(name, _mapping(one))
        for name, one in _mapping(page.get("functions")).items()
    ]
    functions.sort(key=lambda one: (-one.lost, -(one.calls or one.misses)))
    compiling = _mapping(page.get("compiling"))
    transfers = _mapping(page.get("transfers"))
    return Snapshot(
        schema=_whole(page.get("schema")),
        process=_process(_mapping(page.get("process"))),
        functions=tuple(functions),
        recompiles=tuple(
            _recompile(one) for one in happened if one.kind == "recompile"
        ),
        events=happened,
        cache=_cache(_mapping(page.get("cache"))),
        devices=tuple(map(_device, _items(memory.get("devices")))),
        lines=tuple(map(_line, _items(allocations.get("lines")))),
        looks=_looks(allocations),
        leaks=tuple(map(_leak, _items(allocations.get("leaks")))),
        transfers=tuple(map(_transfer, _items(transfers.get("lines")))),
        oom_reports=tuple(
            map(_readable, _texts(_mapping(page.get("errors")).get("oom_reports")))
        ),
        compiling=_whole(compiling.get("count")),
        compiling_seconds=_number(compiling.get("oldest_seconds")) or 0.0,
        hooks_off=tuple(
            _text(hook)
            for hook, active in _mapping(page.get("hooks")).items()
            if active is False
        ),
        failures=_counts(page.get("internal_errors")),
        functions_left_out=_whole(page.get("functions_left_out")),
    )


def _readable(report: str) -> str:
    """Return the path of the text that lies beside the *report* in JSON."""
    stem = report.removesuffix(".json")
    return report if stem == report else f"{stem}.txt"


def _process(told: Json) -> Process:
    return Process(
        pid=_whole(told.get("pid")) or None,
        program=_text(told.get("program")),
        observed=_number(told.get("observed_seconds")) or 0.0,
        now=_number(told.get("now")) or 0.0,
        jax=_text(told.get("jax")),
        jaxmon=_text(told.get("jaxmon")),
        python=_text(told.get("python")),
    )


def _function(name: str, told: Json) -> Function:
    phases, determinism = (_mapping(told.get(k)) for k in ("phases", "determinism"))
    calls, hits = _number(told.get("calls")), _number(told.get("hits"))
    return Function(
        name=_text(name),
        internal=told.get("internal") is True,
        calls=None if calls is None else int(calls),
        hits=None if hits is None else int(hits),
        misses=_whole(told.get("misses")),
        compiles=_counts(told.get("compiles")),
        recompiles=_counts(told.get("recompiles")),
        errors=_counts(told.get("errors")),
        phases={
            _text(phase): _number(_mapping(one).get("seconds")) or 0.0
            for phase, one in phases.items()
        },
        program=_figures(told.get("program")),
        samples=_figures(told.get("samples")),
        numerics=_figures(told.get("numerics")),
        determinism=_checks(determinism),
        not_repeated=_text(determinism.get("not_repeated")),
    )


def _checks(told: Json) -> dict[str, float]:
    failed = {
        f"{kind}_failed": _number(_mapping(told.get(kind)).get("failed")) or 0.0
        for kind in ("checks", "gradient_checks")
    }
    return {**_figures(told), **failed}


def _event(value: object) -> Event:
    told = _mapping(value)
    return Event(
        number=_whole(told.get("number")),
        time=_number(told.get("time")) or 0.0,
        kind=_text(told.get("kind")),
        function=_text(told.get("function")),
        message=_text(told.get("message")),
        details=_details(_mapping(told.get("details"))),
    )


def _details(told: Json) -> Json:
    """Return *told* with its texts made harmless; what is nested is read by name."""
    return {
        _text(key): _text(one) if isinstance(one, str) else one
        for key, one in told.items()
    }


def _recompile(event: Event) -> Recompile:
    told = (_mapping(one) for one in _items(event.details.get("differences")))
    texts = tuple(_text(one.get("text")) for one in told)
    return Recompile(
        time=event.time,
        function=event.function,
        cause=_text(event.details.get("cause")) or "unknown",
        differences=tuple(filter(None, texts)),
        omitted=_whole(event.details.get("omitted")),
        seconds=_number(event.details.get("seconds")),
    )


def _cache(told: Json) -> Cache:
    requests = _counts(told.get("requests"))
    enabled, entries = told.get("enabled"), _number(told.get("entries"))
    return Cache(
        enabled=enabled if isinstance(enabled, bool) else None,
        directory=_text(told.get("directory")),
        hits=requests.get("hit", 0),
        misses=requests.get("miss", 0),
        writes=_whole(told.get("writes")),
        errors=_counts(told.get("errors")),
        saved=_number(told.get("saved_seconds")) or 0.0,
        bytes=_number(told.get("size_bytes")),
        entries=None if entries is None else int(entries),
        obstacles=tuple(
            Obstacle(
                _text(one.get("reason")),
                _text(one.get("message")),
                _text(one.get("advice")),
            )
            for one in map(_mapping, _items(told.get("obstacles")))
        ),
    )


def _device(value: object) -> Device:
    told = _mapping(value)
    arrays = _number(told.get("live_arrays"))
    return Device(
        name=_text(told.get("device")),
        kind=_text(told.get("kind")),
        in_use=_number(told.get("in_use")),
        peak=_number(told.get("peak")),
        limit=_number(told.get("limit")),
        live_arrays=None if arrays is None else int(arrays),
        live_bytes=_number(told.get("live_bytes")),
    )


def _line(value: object) -> Line:
    told = _mapping(value)
    return Line(
        place=_place(told),
        function=_text(told.get("function")),
        bytes=_number(told.get("bytes")) or 0.0,
        arrays=_whole(told.get("arrays")),
        growth=_number(told.get("growth_bytes")) or 0.0,
    )


def _looks(told: Json) -> Looks | None:
    last = _number(told.get("time"))
    return None if last is None else Looks(last, _number(told.get("seconds")) or 0.0)


def _leak(value: object) -> Leak:
    told = _mapping(value)
    return Leak(
        device=_text(told.get("device")),
        growth=_number(told.get("growth_bytes")) or 0.0,
        seconds=_number(told.get("seconds")) or 0.0,
        lines=tuple(map(_line, _items(told.get("lines")))),
    )


def _transfer(value: object) -> Transfer:
    told = _mapping(value)
    return Transfer(
        place=_place(told),
        direction=_text(told.get("direction")),
        how=_text(told.get("how")),
        count=_whole(told.get("count")),
        bytes=_number(told.get("bytes")) or 0.0,
        seconds=_number(told.get("seconds")) or 0.0,
    )


def _place(told: Json) -> str:
    file, line = _text(told.get("file")), _whole(told.get("line"))
    return f"{file}:{line}" if file and line else file


def _mapping(value: object) -> Json:
    return value if isinstance(value, Mapping) else {}


def _items(value: object) -> Iterable[object]:
    return value if isinstance(value, (list, tuple)) else ()


def _texts(value: object) -> tuple[str, ...]:
    return tuple(filter(None, map(_text, _items(value))))


def _text(value: object) -> str:
    """Return *value* in one harmless line, a number as text."""
    if isinstance(value, str):
        return clean(value)
    return f"{value:.0f}" if (value := _number(value)) is not None else ""


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer of more than 300 digits
        return None
    return number if math.isfinite(number) else None


def _whole(value: object) -> int:
    return int(_number(value) or 0)


def _counts(value: object) -> dict[str, int]:
    return {_text(key): _whole(one) for key, one in _mapping(value).items()}


def _figures(value: object) -> dict[str, float]:
    """Return the numbers in *value*; the rest is not for a report."""
    numbers = ((_text(key), _number(one)) for key, one in _mapping(value).items())
    return {key: one for key, one in numbers if one is not None}
