"""Process identity: versions, platform, devices, cluster position."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import ref

from jaxmon import catalog
from jaxmon.agent.context import Context
from jaxmon.agent.jaxlink import backends
from jaxmon.agent.part import Part
from jaxmon.exposition.families import Family, family_of, gauge
from jaxmon.version import version


class DeviceIdentity(Part):
    """Reads constant facts once; those of backends again if there are other ones."""

    name = "identity"

    def __init__(self, context: Context) -> None:
        self._jax = context.jax
        self._release = context.settings.release or _service_version(os.environ)
        self._build: list[Family] = []
        self._backend: list[Family] = []
        self._client: Callable[[], Any] = _no_client

    def collect(self) -> list[Family]:
        """Return the info metrics known so far."""
        if not self._build:
            # Reads a file, so not within `instrument`.
            self._build = [gauge(catalog.BUILD_INFO, 1, version())]
        client = backends.client(self._jax)
        if client is None:
            return list(self._build)
        if self._client() is not client:
            self._backend, self._client = self._read(), ref(client)
        return [*self._build, *self._backend]

    def _read(self) -> list[Family]:
        jax = self._jax
        backend = jax.local_devices()[0].client
        chips = tpus(jax.local_devices())
        return [
            gauge(
                catalog.RUNTIME_INFO,
                1,
                self._release,
                jax.__version__,
                backends.version(),
                platform.python_version(),
                backend.platform,
                # Several lines on a GPU; the first has the version.
                backend.platform_version.partition("\n")[0],
            ),
            family_of(
                catalog.DEVICE_INFO,
                [
                    (
                        *(of.id, of.platform, of.device_kind, of.process_index),
                        *chips.get(of.id, hardware(of)),
                        1,
                    )
                    for of in jax.local_devices()
                ],
            ),
            gauge(catalog.PROCESS_INDEX, jax.process_index()),
            gauge(catalog.PROCESS_COUNT, jax.process_count()),
        ]


def tpus(devices: Sequence[Any]) -> dict[int, tuple[str, str]]:
    """Return UUID and PCI address of those of *devices* that are TPUs, by their ids."""
    found = [device for device in devices if device.platform == "tpu"]
    if not found:
        return {}
    from jaxmon.agent.devices import hardware  # noqa: PLC0415

    return hardware.chips_of(found)


def hardware(device: Any) -> tuple[str, str]:
    """Return UUID and PCI address, as the sidecar has them; empty if unknown."""
    version, ordinal = device.client.platform_version, device.local_hardware_id
    # Without an index it would be taken for CUDA's first device.
    if device.platform != "gpu" or "cuda" not in version.lower() or ordinal is None:
        return "", ""
    from jaxmon.agent.devices import hardware as cuda  # noqa: PLC0415

    return cuda.identify(ordinal)


def _service_version(environ: Mapping[str, str]) -> str:
    given = environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    found = re.search(r"(?:^|,)\s*service\.version\s*=\s*([^,]*)", given)
    return found[1].strip() if found else ""


def _no_client() -> None:
    """Stands for a weak reference before there is an XLA client."""
