"""
Driver metrics of this process's GPUs, for a sidecar without driver access.

Off by default: we must not be inside a hung driver call in the user's program. If
enabled, one daemon thread queries the driver every few seconds, never a scrape; values
are exported while fresh, and a hung call affects only that thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jaxmon.agent.context import Context
from jaxmon.agent.devices import part as identity
from jaxmon.agent.guard import log
from jaxmon.agent.jaxlink import backends
from jaxmon.agent.part import Part
from jaxmon.agent.worker import Worker
from jaxmon.clocks import monotonic
from jaxmon.exposition.families import Family
from jaxmon.threads import Lock


if TYPE_CHECKING:
    from jaxmon.agent.devices.nvml import Nvml
    from jaxmon.exposition.plausible import PlausibilityFilter


EVERY = 5.0
# Nothing is exported afterwards: a gap is better than a stale value.
MAX_AGE = 3 * EVERY
_RETRY_SECONDS = 60.0


class DeviceMetrics(Part):
    """
    Reads this process's JAX devices through NVML, if enabled.

    Never initialises JAX's backends; exports nothing until the program has.
    """

    name = "device_figures"

    def __init__(self, context: Context, *, every: float = EVERY) -> None:
        self._jax = context.jax
        self._wanted = context.settings.device_figures
        self._worker = Worker(
            "device_figures",
            context.scheduler,
            every=every,
            routine=self._query,
            gives_up=False,
        )
        # Held while the driver is queried.
        self._asking = Lock()
        self._nvml: Nvml | None = None
        self._retry = 0.0
        self._warned = False
        self._devices: list[tuple[str, str]] = []
        self._sieve: PlausibilityFilter | None = None
        self._found: tuple[float, list[Family]] | None = None

    def start(self) -> None:
        """Start querying the driver."""
        if self._wanted:
            self._worker.start()

    def stop(self) -> None:
        """Stop querying; a driver call that does not return is abandoned."""
        self._worker.stop()
        self._found = None
        if self._asking.acquire(blocking=False):
            try:
                nvml, self._nvml = self._nvml, None
                if nvml is not None:
                    nvml.close()
            finally:
                self._asking.release()

    def collect(self) -> list[Family]:
        """Return the latest values while they are fresh."""
        found = self._found
        if found is None or monotonic() - found[0] > MAX_AGE:
            return []
        return found[1]

    def _query(self) -> None:
        from jaxmon.agent.devices.nvml import Nvml  # noqa: PLC0415
        from jaxmon.exposition.plausible import PlausibilityFilter  # noqa: PLC0415

        began = monotonic()
        if began < self._retry or not self._known():
            return
        if self._sieve is None:
            self._sieve = PlausibilityFilter(
                log, "the driver of this process's devices"
            )
        with self._asking:
            try:
                self._nvml = self._nvml or Nvml()
            except OSError as error:
                self._retry = began + _RETRY_SECONDS
                if not self._warned:
                    self._warned = True
                    log.warning("jaxmon cannot export device metrics: %s", error)
                return
            found = [
                family
                for uuid, pci_bus_id in self._devices
                for family in self._nvml.device(uuid, pci_bus_id)
            ]
            if not found:  # the driver is gone; start it again later
                self._nvml.close()
                self._nvml = None
                self._retry = began + _RETRY_SECONDS
        self._found = began, self._sieve.sift(found)

    def dropped(self) -> dict[str, int]:
        """Number of implausible driver values dropped."""
        return {"figure": 0 if self._sieve is None else self._sieve.dropped}

    def _known(self) -> bool:
        """
        Return whether there are devices to query, once JAX's backends are initialised.
        """
        if not self._devices and backends.initialised(self._jax):
            named = map(identity.hardware, self._jax.local_devices())
            self._devices = [(uuid, bus) for uuid, bus in named if uuid]
            if not self._devices:
                self._retry = float("inf")
        return bool(self._devices)
