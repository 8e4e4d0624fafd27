"""Candidate addresses of TPU runtime metrics servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple


if TYPE_CHECKING:
    from jaxmon_exporter.collectors.tpu.channel import Target


DEFAULT_PORT = 8431
PROBED_PORTS = range(DEFAULT_PORT, DEFAULT_PORT + 8)

_HERE = "127.0.0.1"
_MOST_ADDRESSES = 16
_HIGHEST_PORT = 65535


class Address(NamedTuple):
    """
    Where a process may serve.

    Args:
        name: value of the label ``runtime``: the port, or the socket's file.
        target: host and port, or the socket's path.
    """

    name: str
    target: Target


def addresses(environ: Mapping[str, str]) -> tuple[list[Address], bool]:
    """
    Return the candidate addresses of runtimes, and whether *environ* set them.

    The variables are those that configure libtpu. Without them: the usual ports, most
    of which are unused.
    """
    if text := environ.get("TPU_RUNTIME_METRICS_ADDRESS", "").strip():
        return [_address(text)], True
    if (listed := environ.get("TPU_RUNTIME_METRICS_PORTS")) is not None:
        return [_local(port) for port in _ports(listed)], True
    if ports := _ports(environ.get("TPU_RUNTIME_PRIMARY_METRIC_PORT", "")):
        return [_local(port) for port in ports], True
    return [_local(port) for port in PROBED_PORTS], False


def _ports(text: str) -> list[int]:
    found = [int(part) for part in text.split(",") if part.strip().isdecimal()]
    right = dict.fromkeys(port for port in found if 0 < port <= _HIGHEST_PORT)
    return list(right)[:_MOST_ADDRESSES]


def _local(port: int) -> Address:
    return Address(str(port), (_HERE, port))


def _address(text: str) -> Address:
    path = text.removeprefix("unix://").removeprefix("unix:")
    host, _, port = text.rpartition(":")
    if path != text or "/" in text or not (ports := _ports(port)):
        return Address(path.rpartition("/")[2], path)
    host = host.strip("[]")
    # A wildcard address of a server cannot be connected to.
    if host in ("", "localhost", "0.0.0.0"):  # noqa: S104 - nothing is bound
        host = _HERE
    elif host == "::":
        host = "::1"
    return Address(port, (host, ports[0]))
