"""
Metrics from a neighbouring dcgm-exporter that we cannot read ourselves.

That is the activity of GPUs before Hopper, and everything if this process has no
driver. Metrics get our names and units; those of our own collectors take precedence
(`jaxmon_exporter.precedence`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from jaxmon.catalog import ACCELERATOR_INFO
from jaxmon.exposition.families import Family, series
from jaxmon.http.fetch import FetchError
from jaxmon.http.urls import parts_of, shown
from jaxmon_exporter.collecting import CollectorUnavailable, partial_failures
from jaxmon_exporter.collectors.dcgm.fetch import fetch_page
from jaxmon_exporter.collectors.dcgm.fields import FIELDS
from jaxmon_exporter.collectors.dcgm.page import Line, lines
from jaxmon_exporter.precedence import instance


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


def _gpu(line: Line) -> str | None:
    """Return the GPU of a value; `None` for a virtual GPU's or a link's."""
    labels = line.labels
    if "vgpu" in labels or "nvlink" in labels:
        return None
    if not _NUMBER.fullmatch(labels.get("GPU_I_ID", "")):
        return None
    uuid = labels.get("UUID", "")
    return uuid if _UUID.fullmatch(uuid) else None


def _info(uuid: str, line: Line) -> str:
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
