"""Figures and states of cores as messages of libtpu's service."""

from typing import Any

from tests.helpers.traces import double, field, packed, signed


def attribute_value(value: Any) -> bytes:
    if isinstance(value, dict):
        return field(6, b"".join(field(1, attribute(*one)) for one in value.items()))
    return field(1, value) if isinstance(value, str) else signed(3, value)


def attribute(key: str, value: Any) -> bytes:
    return field(1, key) + field(2, attribute_value(value))


def options(kind: str, numbers: list[float]) -> bytes:
    """Return the bounds of a distribution, of one of the three kinds."""
    if kind == "explicit":
        return field(3, b"".join(double(1, one) for one in numbers))
    finite, first, second = numbers
    text = field(1, int(finite)) + double(2, first) + double(3, second)
    return field(2 if kind == "exponential" else 4, text)


def measure(one: dict[str, Any]) -> bytes:
    out = field(1, attribute(*one["of"])) if "of" in one else b""
    out += field(2, field(1, 1_700_000_000))  # a time, which nobody reads
    if "int" in one:
        return out + field(3, signed(2, one["int"]))
    if "double" in one:
        return out + field(3, double(1, one["double"]))
    if "text" in one:
        return out + field(3, field(3, one["text"]))
    if "counter" in one:
        return out + field(4, field(2, one["counter"]))
    if "distribution" in one:
        told = one["distribution"]
        text = field(1, sum(told["counts"])) + double(2, told["mean"])
        text += field(6, options(*told["bounds"])) + packed(7, told["counts"])
        return out + field(5, text)
    return out


def state(one: dict[str, Any]) -> bytes:
    on_chip = field(1, one.get("kind", 1)) + field(2, one["core"])
    identity = field(1, one["id"]) + field(2, one["chip"]) + field(3, on_chip)
    out = field(1, identity)
    for kind in (4, 1):  # a sequencer that is not asked about comes first
        text = field(1, kind) + field(2, 0)
        if kind == 1:
            text += signed(3, one["counter"]) + field(4, 7) + field(5, 9)
            text += signed(6, one["program"]) + signed(7, one["run"])
            if "location" in one:
                text += field(8, one["location"])
        out += field(2, text)
    out += field(4, b"\x01\x02")
    for run in range(one["queued"]):
        out += field(6, field(1, run) + field(2, 5))
    return out + (field(7, one["error"]) if "error" in one else b"")
