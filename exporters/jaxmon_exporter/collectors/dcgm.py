"""
Metrics from a neighbouring dcgm-exporter that we cannot read ourselves.

That is the activity of GPUs before Hopper, and everything if this process has no
driver. Metrics get our names and units; those of our own collectors take precedence
(`jaxmon_exporter.polling`).
"""

from __future__ import annotations

import io
import math
import re
import ssl
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException

from jaxmon.catalog import ACCELERATOR_INFO
from jaxmon.exposition.families import Family, series
from jaxmon.host.http.client import Route, UnreachableError
from jaxmon.host.http.fetch import BROKEN, TIMEOUT, TOO_LARGE, FetchError
from jaxmon.host.http.stream import Bounds, TooLargeError
from jaxmon.host.http.urls import Secrets, parts_of, shown, target_of
from jaxmon_exporter import polling
from jaxmon_exporter.dcgm_fields import READ


UNREACHABLE = "unreachable"
REDIRECT = "redirect"
STATUS = "http_status"
TLS = "tls"

# The first that applies.
_TROUBLES = (
    (TimeoutError, TIMEOUT, "no complete response within {seconds:g} s"),
    (TooLargeError, TOO_LARGE, "{error}; configure it to export fewer fields"),
    (UnreachableError, UNREACHABLE, "cannot connect: {error}"),
    (
        *(ssl.SSLError, TLS),
        "TLS connection failed: {error}; set SSL_CERT_FILE for a custom CA",
    ),
    ((HTTPException, ValueError), BROKEN, "invalid HTTP response: {error!r}"),
    (OSError, BROKEN, "connection failed: {error}"),
)
_ACCEPT = {"Accept": "text/plain; version=0.0.4"}


def usable(url: str) -> str:
    """Return *url* of HTTP or HTTPS, with a path if it has none; else `ValueError`."""
    parts = parts_of(url)
    return parts._replace(path=parts.path or "/metrics").geturl()


def fetch_page(url: str, *, timeout: float, max_bytes: int) -> tuple[str, bytes]:
    """GET *url*; return content type and body, or raise `FetchError`."""
    parts = parts_of(url)
    route = Route(parts)
    # Its response may quote the request.
    hidden = Secrets(*route.secrets)
    bounds = Bounds(timeout, max_bytes)
    try:
        response = route.exchange("GET", target_of(parts), bounds, headers=_ACCEPT)
    except (OSError, HTTPException, ValueError) as error:
        _, reason, text = next(row for row in _TROUBLES if isinstance(error, row[0]))
        message = text.format(error=error, seconds=timeout)
        raise FetchError(reason, hidden.redacted(message)) from error
    if response.status in range(300, 400):
        message = f"HTTP status {response.status}; give the full URL of its metrics"
        raise FetchError(REDIRECT, message)
    if response.status != HTTPStatus.OK:
        raise FetchError(STATUS, f"it returned HTTP status {response.status}")
    # The default of HTTP if a server does not send a type.
    return hidden.redacted(response.type or "text/plain"), response.body


_LINE = re.compile(r"(DCGM_[A-Z0-9_]{1,100})\{(.*)\}[ \t]+(\S{1,64})(?:[ \t]+-?\d+)?")
# A value ends where the next label begins. Split here, a line is read in one pass,
# whatever it holds.
_BEGIN = re.compile(r'(?:^|,)([a-zA-Z_][a-zA-Z0-9_]{0,100}+)="')
_MOST_OF_A_LINE = 8192
# DCGM has sentinel values that say why there is no value: "nothing yet", "not found",
# "not supported" and "not permitted", for integers at the top of 64 bits and for
# floating point from 2**47 on; some exporters print them like values. A percentage, a
# temperature, or the bytes of a memory come nowhere near, and energy in mJ takes a GPU
# six years at 700 W.
_FIRST_BLANK = float(1 << 47)


@dataclass(frozen=True, slots=True)
class DcgmValue:
    """A value of a field, `None` if it is blank."""

    field: str
    labels: Mapping[str, str]
    value: float | None


def lines(page: bytes, wanted: Container[str]) -> Iterator[DcgmValue | None]:
    """Yield DCGM's values in *page*, `None` for malformed lines; 15 µs if *wanted*."""
    for raw in io.BytesIO(page):
        line = raw.strip()
        if line.startswith(b"DCGM_"):
            field, brace, _ = line.partition(b"{")
            name = field.decode("ascii", "replace")
            is_other = brace and name not in wanted
            yield DcgmValue(name, {}, None) if is_other else _line(line)


def _line(line: bytes) -> DcgmValue | None:
    if len(line) > _MOST_OF_A_LINE:
        return None
    match = _LINE.fullmatch(line.decode("utf-8", "replace"))
    if match is None:
        return None
    labels: dict[str, str] = {}
    _, *parts = _BEGIN.split(match[2])
    for name, value in zip(parts[::2], parts[1::2], strict=True):
        if value.endswith('"'):
            labels.setdefault(name, value[:-1])
    try:
        return DcgmValue(match[1], labels, _number(match[3]))
    except ValueError:
        return None


def _number(text: str) -> float | None:
    """Return the number *text*, `None` if it is blank or not finite; `ValueError`."""
    value = float(text)
    return value if math.isfinite(value) and value < _FIRST_BLANK else None


_UUID = re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NUMBER = re.compile(r"[0-9]{0,3}")
_TEXT = ("text/plain", "application/openmetrics-text")
_DRIVER, _DRIVER_SINCE_4_6 = "DCGM_FI_DRIVER_VERSION", "DCGM_FI_SYSTEM_DRIVER_VERSION"
_MOST_GPUS = 64
_BROKEN_LINE = "broken_line"
_TOO_MANY = "too_many_gpus"


class Dcgm(polling.Collector):
    """Reads one dcgm-exporter, which itself polls every 30 s by default."""

    name = "dcgm"

    def __init__(
        self,
        url: str,
        *,
        interval: float = 10.0,
        timeout: float = 5.0,
        max_bytes: int = 8 << 20,
    ) -> None:
        self.interval = interval
        self.deadline = timeout + 5.0
        self._url = url
        self._shown = shown(parts_of(url))
        self._timeout = timeout
        self._max_bytes = max_bytes
        self._failures = Counter({_BROKEN_LINE: 0, _TOO_MANY: 0})

    def collect(self) -> Iterable[Family]:
        """Read the metrics; a few milliseconds for eight GPUs."""
        page = self._page()
        found: dict[str, Family] = {}
        seen: set[str] = set()
        gpus: dict[str, str] = {}
        read = 0
        for line in lines(page, READ):
            if line is None:
                self._failures[_BROKEN_LINE] += 1
                continue
            read += 1
            field = READ.get(line.field)
            if field is None or (uuid := _gpu(line)) is None:
                continue
            if uuid not in gpus:
                if len(gpus) >= _MOST_GPUS:
                    self._failures[_TOO_MANY] += 1
                    continue
                gpus[uuid] = _info(uuid, line)
            if line.value is None:
                continue
            if number := line.labels.get("GPU_I_ID"):
                uuid = polling.instance(uuid, number)
            metric = field.metrics[0]
            name = series(metric, uuid, *field.labels)
            # Both spellings, or one GPU for each of the jobs that share it.
            if name not in seen:
                seen.add(name)
                family = found.setdefault(metric.name, Family(metric, []))
                family.samples.append((name, field.unit.ours(line.value)))
        failures = polling.partial_failures(self.name, self._failures)
        if not read:
            reason = "not_dcgm" if page.strip() else "empty"
            message = (
                f"{self._shown} contains no DCGM metrics; give the "
                "URL of a dcgm-exporter, or wait if it is reloading"
            )
            raise polling.CollectorUnavailable(reason, message, [failures])
        info = Family(ACCELERATOR_INFO, [(name, 1.0) for name in gpus.values()])
        return [info, *found.values(), failures]

    def _page(self) -> bytes:
        try:
            kind, body = fetch_page(
                self._url, timeout=self._timeout, max_bytes=self._max_bytes
            )
        except FetchError as error:
            message = f"{self._shown}: {error}"
            raise polling.CollectorUnavailable(error.reason, message) from error
        if kind not in _TEXT and body:
            reason = "not_dcgm"
            message = f"{self._shown} is {kind[:80]}; give the URL of a dcgm-exporter"
            raise polling.CollectorUnavailable(reason, message)
        return body


def _gpu(line: DcgmValue) -> str | None:
    """Return the GPU of a value; `None` for a virtual GPU's or a link's."""
    labels = line.labels
    uuid, instance = labels.get("UUID", ""), labels.get("GPU_I_ID", "")
    whole = "vgpu" not in labels and "nvlink" not in labels
    is_known = whole and _NUMBER.fullmatch(instance) and _UUID.fullmatch(uuid)
    return uuid if is_known else None


def _info(uuid: str, line: DcgmValue) -> str:
    labels = line.labels
    domain, _, rest = labels.get("pci_bus_id", "").lower().partition(":")
    return series(
        ACCELERATOR_INFO,
        uuid,
        labels.get("gpu", ""),
        "nvidia",
        labels.get("modelName", ""),
        labels.get(_DRIVER) or labels.get(_DRIVER_SINCE_4_6, ""),
        f"{domain[-4:]}:{rest}" if rest else "",
    )
