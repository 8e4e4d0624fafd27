"""
Writes samples into a Prometheus by remote write, version 1.

The samples of a series are fixed in length, so that NumPy lays out millions of them a
second; compression is Snappy's format without compressing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from http import HTTPStatus
from http.client import HTTPConnection
from typing import Self, TypeAlias
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray


Floats: TypeAlias = NDArray[np.float64]

# What Prometheus writes when a series ends.
STALE = np.frombuffer(struct.pack("<Q", 0x7FF0000000000002), np.float64)[0]

_TIMESTAMP_BYTES = 6
_SAMPLE = np.dtype(
    [
        ("head", "u1", 2),  # field 2 of a series, length
        ("value_tag", "u1"),
        ("value", "<f8"),
        ("time_tag", "u1"),
        ("time", "u1", _TIMESTAMP_BYTES),
    ]
)
_SAMPLE_HEAD = (0x12, _SAMPLE.itemsize - 2)
_REQUEST_BYTES = 4_000_000


class RemoteWriteError(Exception):
    """Prometheus rejected samples."""


def series(labels: Iterable[tuple[str, str]]) -> bytes:
    """Return *labels* encoded, in the order that Prometheus asks for."""
    found = bytearray()
    for name, value in sorted(labels):
        if not value:
            continue
        one = _field(1, name.encode()) + _field(2, value.encode())
        found += _field(1, one)
    return bytes(found)


def samples(times: Floats) -> NDArray[np.void]:
    """Return the encoding of samples at *times*, in seconds, without values."""
    laid = np.zeros(len(times), _SAMPLE)
    laid["head"] = _SAMPLE_HEAD
    laid["value_tag"], laid["time_tag"] = 0x09, 0x10
    left = np.round(times * 1000).astype(np.uint64)
    for index in range(_TIMESTAMP_BYTES):
        more = 0x80 if index < _TIMESTAMP_BYTES - 1 else 0
        laid["time"][:, index] = (left & np.uint64(0x7F)).astype(np.uint8) | more
        left >>= np.uint64(7)
    return laid


class Writer:
    """
    Sends series to the Prometheus at *url*, some megabytes at a time.

    Use as a context; what is left is sent at its end. Values that are NaN are no
    samples, except `STALE`.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._connection = HTTPConnection(parts.netloc, timeout=600)
        self._waiting: list[bytes] = []
        self._size = 0
        self.samples = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.flush()
        self._connection.close()

    def add(
        self,
        labels: bytes,
        laid: NDArray[np.void],
        values: Floats,
        keep: NDArray[np.bool_] | None,
    ) -> None:
        """Add *values* at the times of *laid*; only those in *keep*, if given."""
        laid["value"] = values
        kept = laid if keep is None else laid[keep]
        if not len(kept):
            return
        self.samples += len(kept)
        body = labels + kept.tobytes()
        one = b"\x0a" + _varint(len(body)) + body
        self._waiting.append(one)
        self._size += len(one)
        if self._size > _REQUEST_BYTES:
            self.flush()

    def flush(self) -> None:
        """
        Send what is waiting.

        Raises:
            RemoteWriteError: with what Prometheus says.
        """
        if not self._waiting:
            return
        data = b"".join(self._waiting)
        self._waiting.clear()
        self._size = 0
        # One literal: its length less one, in four bytes.
        packed = _varint(len(data)) + b"\xfc" + struct.pack("<I", len(data) - 1) + data
        headers = {
            "Content-Encoding": "snappy",
            "Content-Type": "application/x-protobuf",
            "X-Prometheus-Remote-Write-Version": "0.1.0",
        }
        self._connection.request("POST", "/api/v1/write", packed, headers)
        response = self._connection.getresponse()
        text = response.read().decode(errors="replace")
        if response.status not in (HTTPStatus.OK, HTTPStatus.NO_CONTENT):
            msg = f"status {response.status}: {text.strip()}"
            raise RemoteWriteError(msg)


def _field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(data)) + data


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:  # noqa: PLR2004 - seven bits a byte
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
