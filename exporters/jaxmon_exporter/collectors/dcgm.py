"""
Metrics from a neighbouring dcgm-exporter that we cannot read ourselves.

That is the activity of GPUs before Hopper, and everything if this process has no
driver. Metrics get our names and units; those of our own collectors take precedence
(`jaxmon_exporter.precedence`).
"""

from __future__ import annotations

import io
import math
import re
import ssl
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException

from jaxmon import catalog
from jaxmon.catalog import ACCELERATOR_INFO, Metric
from jaxmon.exposition.families import Family, series
from jaxmon.host.http.fetch import BROKEN, TIMEOUT, TOO_LARGE, FetchError
from jaxmon.host.http.redaction import Secrets
from jaxmon.host.http.route import Route, UnreachableError
from jaxmon.host.http.stream import Bounds, TooLargeError
from jaxmon.host.http.urls import parts_of, shown, target_of
from jaxmon_exporter.collecting import CollectorUnavailable, partial_failures
from jaxmon_exporter.precedence import instance


def _as_it_is(value: float) -> float:
    return value


def _percent(value: float) -> float:
    return value / 100


def _mebibytes(value: float) -> float:
    return value * (1 << 20)


def _megahertz(value: float) -> float:
    return value * 1_000_000


def _millijoules(value: float) -> float:
    return value / 1000


@dataclass(frozen=True, slots=True)
class DcgmField:
    """
    How a DCGM field maps to a metric.

    Args:
        metric: its first label is ``uuid``.
        labels: values of the labels after ``uuid``.
        convert: returns DCGM's value in the metric's unit.
    """

    metric: Metric
    labels: tuple[str, ...] = ()
    convert: Callable[[float], float] = _as_it_is


def _fields() -> dict[str, DcgmField]:
    known: dict[str, DcgmField] = {}

    def add(
        names: str, metric: Metric, *labels: str, convert: Callable[..., float]
    ) -> None:
        field = DcgmField(metric, labels, convert)
        known.update({f"DCGM_FI_{name}": field for name in names.split()})

    clock = catalog.ACCELERATOR_CLOCK_HERTZ
    add("DEV_SM_CLOCK", clock, "sm", convert=_megahertz)
    add("DEV_MEM_CLOCK", clock, "memory", convert=_megahertz)
    add("DEV_VIDEO_CLOCK", clock, "video", convert=_megahertz)
    energy = catalog.ACCELERATOR_ENERGY_JOULES
    add("DEV_TOTAL_ENERGY_CONSUMPTION", energy, convert=_millijoules)
    engine = catalog.GPU_ENGINE_UTILIZATION_RATIO
    add(
        "DEV_GPU_UTIL DEV_GPU_UTIL_RATIO",
        catalog.ACCELERATOR_UTILIZATION_RATIO,
        convert=_percent,
    )
    add(
        "DEV_MEM_COPY_UTIL",
        catalog.GPU_MEMORY_CONTROLLER_UTILIZATION_RATIO,
        convert=_percent,
    )
    add("DEV_ENC_UTIL", engine, "encoder", convert=_percent)
    add("DEV_DEC_UTIL", engine, "decoder", convert=_percent)
    for name, metric in (
        ("DEV_FB_USED", catalog.ACCELERATOR_MEMORY_USED_BYTES),
        ("DEV_FB_FREE", catalog.ACCELERATOR_MEMORY_FREE_BYTES),
        ("DEV_FB_RESERVED", catalog.ACCELERATOR_MEMORY_RESERVED_BYTES),
        ("DEV_FB_TOTAL", catalog.ACCELERATOR_MEMORY_SIZE_BYTES),
    ):
        add(name, metric, convert=_mebibytes)
    temperature = catalog.ACCELERATOR_TEMPERATURE_CELSIUS
    ecc = catalog.GPU_ECC_ERRORS
    rows = catalog.GPU_REMAPPED_ROWS
    for names, metric, *labels in (
        ("DEV_GPU_TEMP DEV_GPU_TEMP_CELSIUS", temperature, "gpu"),
        ("DEV_MEMORY_TEMP DEV_MEMORY_TEMP_CELSIUS", temperature, "memory"),
        (
            "DEV_POWER_USAGE DEV_BOARD_POWER_WATTS",
            catalog.ACCELERATOR_POWER_WATTS,
        ),
        (
            "DEV_ENFORCED_POWER_LIMIT DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS",
            catalog.ACCELERATOR_POWER_LIMIT_WATTS,
        ),
        ("DEV_PCIE_REPLAY_COUNTER DEV_PCIE_REPLAY_TOTAL", catalog.GPU_PCIE_REPLAYS),
        ("DEV_ECC_SBE_VOL_TOTAL", ecc, "corrected", "volatile"),
        ("DEV_ECC_DBE_VOL_TOTAL", ecc, "uncorrected", "volatile"),
        ("DEV_ECC_SBE_AGG_TOTAL", ecc, "corrected", "aggregate"),
        ("DEV_ECC_DBE_AGG_TOTAL", ecc, "uncorrected", "aggregate"),
        (
            "DEV_CORRECTABLE_REMAPPED_ROWS DEV_ROW_REMAP_CORRECTABLE_TOTAL",
            rows,
            "corrected",
        ),
        (
            "DEV_UNCORRECTABLE_REMAPPED_ROWS DEV_ROW_REMAP_UNCORRECTABLE_TOTAL",
            rows,
            "uncorrected",
        ),
        ("DEV_ROW_REMAP_PENDING", catalog.GPU_ROW_REMAP_PENDING),
        (
            "DEV_ROW_REMAP_FAILURE DEV_ROW_REMAP_FAILED",
            catalog.GPU_ROW_REMAP_FAILURE,
        ),
        (
            "PROF_GR_ENGINE_ACTIVE PROF_GR_ENGINE_UTIL_RATIO",
            catalog.GPU_GRAPHICS_ACTIVE_RATIO,
        ),
        ("PROF_SM_ACTIVE PROF_SM_UTIL_RATIO", catalog.GPU_SM_ACTIVE_RATIO),
        (
            "PROF_SM_OCCUPANCY PROF_SM_OCCUPANCY_RATIO",
            catalog.GPU_SM_OCCUPANCY_RATIO,
        ),
        (
            "PROF_PIPE_TENSOR_ACTIVE PROF_TENSOR_UTIL_RATIO",
            catalog.GPU_TENSOR_ACTIVE_RATIO,
        ),
        ("PROF_DRAM_ACTIVE PROF_DRAM_UTIL_RATIO", catalog.GPU_DRAM_ACTIVE_RATIO),
        ("PROF_PIPE_FP16_ACTIVE PROF_FP16_UTIL_RATIO", catalog.GPU_FP16_ACTIVE_RATIO),
        ("PROF_PIPE_FP32_ACTIVE PROF_FP32_UTIL_RATIO", catalog.GPU_FP32_ACTIVE_RATIO),
        ("PROF_PIPE_FP64_ACTIVE PROF_FP64_UTIL_RATIO", catalog.GPU_FP64_ACTIVE_RATIO),
        # Rates, whatever their names say.
        ("PROF_PCIE_TX_BYTES", catalog.GPU_PCIE_TRANSMIT_BYTES_PER_SECOND),
        ("PROF_PCIE_RX_BYTES", catalog.GPU_PCIE_RECEIVE_BYTES_PER_SECOND),
        ("PROF_NVLINK_TX_BYTES", catalog.GPU_NVLINK_TRANSMIT_BYTES_PER_SECOND),
        ("PROF_NVLINK_RX_BYTES", catalog.GPU_NVLINK_RECEIVE_BYTES_PER_SECOND),
    ):
        add(names, metric, *labels, convert=_as_it_is)
    return known


FIELDS = _fields()


UNREACHABLE = "unreachable"
REDIRECT = "redirect"
STATUS = "http_status"
TLS = "tls"

_ACCEPT = {"Accept": "text/plain; version=0.0.4"}


def usable(url: str) -> str:
    """
    Return *url*, with a path added if it has none.

    Raises:
        ValueError: it is not HTTP or HTTPS, or has no host.
    """
    parts = parts_of(url)
    return parts._replace(path=parts.path or "/metrics").geturl()


def fetch_page(url: str, *, timeout: float, max_bytes: int) -> tuple[str, bytes]:
    """
    GET *url* and return content type and body. Redirects are not followed: a redirect
    target was not configured by the user.

    Args:
        url: may contain user and password.
        timeout: seconds for the whole exchange, however slowly the response arrives.
        max_bytes: maximum size of the response, including the head.

    Raises:
        FetchError: with the reason.
    """
    parts = parts_of(url)
    route = Route(parts)
    # Its response may quote the request.
    hidden = Secrets(*route.secrets)
    bounds = Bounds(timeout, max_bytes)
    try:
        response = route.exchange("GET", target_of(parts), bounds, headers=_ACCEPT)
    except TimeoutError as error:
        message = f"no complete response within {timeout:g} s"
        raise FetchError(TIMEOUT, message) from error
    except TooLargeError as error:
        message = f"{error}; configure it to export fewer fields"
        raise FetchError(TOO_LARGE, message) from error
    except UnreachableError as error:
        message = f"cannot connect: {error}"
        raise FetchError(UNREACHABLE, message) from error
    except ssl.SSLError as error:
        message = f"TLS connection failed: {error}; set SSL_CERT_FILE for a custom CA"
        raise FetchError(TLS, message) from error
    except (HTTPException, ValueError) as error:
        message = f"invalid HTTP response: {error!r}"
        raise FetchError(BROKEN, hidden.redacted(message)) from error
    except OSError as error:
        message = f"connection failed: {error}"
        raise FetchError(BROKEN, message) from error
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
    """
    One value.

    Args:
        value: `None` if it is blank.
    """

    field: str
    labels: Mapping[str, str]
    value: float | None


def lines(page: bytes, wanted: Container[str]) -> Iterator[DcgmValue | None]:
    """
    Yield DCGM's values in *page*, and `None` for each malformed line.

    Lines of other exporters are ignored. Parsing takes about 15 µs per line, or 1 µs if
    its field is not *wanted*: such a line is yielded without labels and value. The page
    is not copied, because it may be large.
    """
    for raw in io.BytesIO(page):
        line = raw.strip()
        if line.startswith(b"DCGM_"):
            field, brace, _ = line.partition(b"{")
            name = field.decode("ascii", "replace")
            yield (
                DcgmValue(name, {}, None)
                if brace and name not in wanted
                else _line(line)
            )


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
        return DcgmValue(match[1], labels, _known(match[3]))
    except ValueError:
        return None


def _known(text: str) -> float | None:
    """
    Return the number that *text* shows; `None` when it is blank or no finite number.

    Raises:
        ValueError: *text* is no number at all.
    """
    value = float(text)
    return value if math.isfinite(value) and value < _FIRST_BLANK else None


_UUID = re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NUMBER = re.compile(r"[0-9]{0,3}")
_TEXT = ("text/plain", "application/openmetrics-text")
_DRIVER, _DRIVER_SINCE_4_6 = "DCGM_FI_DRIVER_VERSION", "DCGM_FI_SYSTEM_DRIVER_VERSION"
_MOST_GPUS = 64
_BROKEN_LINE = "broken_line"
_TOO_MANY = "too_many_gpus"


class Dcgm:
    """
    Reads the metrics of one dcgm-exporter.

    Args:
        url: may contain user and password.
        interval: seconds between polls. dcgm-exporter itself polls every 30 s by
            default.
        timeout: for a response, in seconds.
        max_bytes: maximum size of the response.
    """

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
        """
        Read the metrics; a few milliseconds for eight GPUs.

        Raises:
            CollectorUnavailable: there is no response, or it is not dcgm-exporter's.
        """
        page = self._page()
        found: dict[str, Family] = {}
        seen: set[str] = set()
        gpus: dict[str, str] = {}
        read = 0
        for line in lines(page, FIELDS):
            if line is None:
                self._failures[_BROKEN_LINE] += 1
                continue
            read += 1
            field = FIELDS.get(line.field)
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
                uuid = instance(uuid, number)
            name = series(field.metric, uuid, *field.labels)
            # Both spellings, or one GPU for each of the jobs that share it.
            if name not in seen:
                seen.add(name)
                family = found.setdefault(field.metric.name, Family(field.metric, []))
                family.samples.append((name, field.convert(line.value)))
        failures = partial_failures(self.name, self._failures)
        if not read:
            reason = "not_dcgm" if page.strip() else "empty"
            message = (
                f"{self._shown} contains no DCGM metrics; give the "
                "URL of a dcgm-exporter, or wait if it is reloading"
            )
            raise CollectorUnavailable(reason, message, [failures])
        info = Family(ACCELERATOR_INFO, [(one, 1.0) for one in gpus.values()])
        return [info, *found.values(), failures]

    def close(self) -> None:
        """Nothing is held between polls."""

    def _page(self) -> bytes:
        try:
            kind, body = fetch_page(
                self._url, timeout=self._timeout, max_bytes=self._max_bytes
            )
        except FetchError as error:
            message = f"{self._shown}: {error}"
            raise CollectorUnavailable(error.reason, message) from error
        if kind not in _TEXT and body:
            reason = "not_dcgm"
            message = f"{self._shown} is {kind[:80]}; give the URL of a dcgm-exporter"
            raise CollectorUnavailable(reason, message)
        return body


def _gpu(line: DcgmValue) -> str | None:
    """Return the GPU of a value; `None` for a virtual GPU's or a link's."""
    labels = line.labels
    if "vgpu" in labels or "nvlink" in labels:
        return None
    if not _NUMBER.fullmatch(labels.get("GPU_I_ID", "")):
        return None
    uuid = labels.get("UUID", "")
    return uuid if _UUID.fullmatch(uuid) else None


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
