"""
TPUs: chips from the PCI bus, figures from the runtimes of the processes that use them.

Chips without a process are idle, and a process without a server is one that does
not tell: neither is a failure of the collector. A runtime that goes is hung up on
and looked for again by every poll.
"""

from __future__ import annotations

import importlib
import logging
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from jaxmon import tpus
from jaxmon.catalog import (
    ACCELERATOR_INFO,
    ACCELERATOR_UP,
    TPU_OWNER_PID,
    TPU_RUNTIME_UP,
)
from jaxmon.errors import WireError
from jaxmon.exposition.families import Family, gauge, series
from jaxmon.tpus import Chip
from jaxmon_exporter.collectors import tpu_client, tpu_messages
from jaxmon_exporter.collectors.tpu_client import (
    Failure,
    Method,
    Reply,
    Runtime,
)
from jaxmon_exporter.collectors.tpu_hangs import Hangs
from jaxmon_exporter.collectors.tpu_metrics import (
    NAMES,
    UPTIME,
    Figures,
    Reading,
    further_names,
)
from jaxmon_exporter.polling import Clock, CollectorUnavailable, partial_failures


log = logging.getLogger("jaxmon.exporter")

_SECONDS = 1.5  # for the replies of all runtimes together
_OWNERS_EVERY = 30.0
_STATUS: Method = "GetTpuRuntimeStatus"
_NO_WORDS = tpu_messages.status_request(words=False)


@dataclass(slots=True)
class _Known:
    """
    An address, and what is known of the runtime there.
    """

    runtime: Runtime
    up: bool = False
    slow: bool = False
    met: bool = False
    further: list[str] = field(default_factory=list)
    unknown: set[str] = field(default_factory=set)
    uptime: float = 0.0

    @property
    def name(self) -> str:
        return self.runtime.address.name

    def names(self) -> list[str]:
        """
        Return what to ask it for.
        """
        return [name for name in (*NAMES, *self.further) if name not in self.unknown]

    def gone(self) -> None:
        """
        Hang up, and forget what it could: another one may come.
        """
        self.runtime.close()
        self.up = False
        self.renew()

    def renew(self) -> None:
        self.unknown.clear()
        self.uptime = 0.0


class Tpus:
    """
    Reads every TPU of this host, and every runtime that serves figures.

    Args:
        interval: seconds between two looks.
        root: where ``sys``, ``dev`` and ``proc`` are.
        environ: may tell where the runtimes serve.
        clock: seconds, monotonic.
    """

    name = "tpu"
    deadline = 8.0

    def __init__(
        self,
        *,
        interval: float = 5.0,
        root: Path = tpus.ROOT,
        environ: Mapping[str, str] = os.environ,
        clock: Clock = time.monotonic,
    ) -> None:
        self.interval = interval
        self._root = root
        self._addresses, self._configured = tpu_client.addresses(environ)
        self._clock = clock
        self._grpc: ModuleType | None = None
        self._known = [_Known(Runtime(address)) for address in self._addresses]
        self._chips: dict[str, Chip] = {}
        self._owners: dict[str, int] = {}
        self._owners_at: float | None = None
        self._failures: Counter[str] = Counter()
        self._hangs = Hangs(clock)

    def collect(self) -> Iterable[Family]:
        """
        Read chips and runtimes: some milliseconds, and five seconds at most however
        many runtimes do not answer.

        Raises:
            CollectorUnavailable: no TPU, or gRPC is not installed.
        """
        chips = tpus.find(self._root)
        present = {chip.uuid for chip in chips}
        # A chip that is lost keeps its place, until the host is put together anew.
        if not present <= self._chips.keys():
            self._chips = {chip.uuid: chip for chip in chips}
        if not self._chips and not self._configured:
            reason, message = "no_devices", "there is no TPU on this host's PCI bus"
            raise CollectorUnavailable(reason, message)
        identity = [*self._identity(present), *self._owned(chips)]
        if not self._addresses:  # switched off, by the variable that switches it on
            return identity
        reachable = [
            known
            for known in self._known
            if known.up or not tpu_client.refused(known.runtime.address)
        ]
        grpc = self._loaded(identity) if reachable else None
        readings = self._read(grpc, reachable) if grpc else []
        uuids, per_chip = self._layout(readings)
        figures = Figures(uuids, per_chip, readings, self._failures)
        found = [*identity, *self._up(), *figures.families()]
        self._watch(figures)
        return [*found, partial_failures(self.name, self._failures)]

    def close(self) -> None:
        """
        Hang up everywhere.
        """
        for known in self._known:
            known.runtime.close()

    def _loaded(self, identity: Sequence[Family]) -> ModuleType:
        if self._grpc is None:
            # Before the first channel: gRPC's own log is for its developers.
            os.environ.setdefault("GRPC_VERBOSITY", "NONE")
            try:
                self._grpc = importlib.import_module("grpc")
            except ImportError as error:
                reason = "not_installed"
                message = (
                    "the package grpcio is missing; pip install 'jaxmon[tpu]' to read "
                    "what TPUs do, or pass --disable tpu"
                )
                raise CollectorUnavailable(reason, message, identity) from error
        return self._grpc

    def _read(self, grpc: ModuleType, reachable: Sequence[_Known]) -> list[Reading]:
        """
        Ask all runtimes; those not known to be up are greeted first.
        """
        self._greet(grpc, [known for known in reachable if not known.up])
        up = [known for known in reachable if known.up]
        # Several processes each tell their own; a single one tells for all. One that
        # hangs is left to itself: another that asks it would hang as well.
        own = sum(known.up or known.slow for known in reachable) > 1
        asked = [
            (known, name, tpu_messages.metric_request(name, own=own))
            for known in up
            for name in known.names()
        ]
        states = [known for known in up if _STATUS not in known.unknown]
        replies = tpu_client.ask(
            grpc,
            [
                *((one.runtime, "GetRuntimeMetric", text) for one, _, text in asked),
                *((one.runtime, _STATUS, _NO_WORDS) for one in states),
            ],
            _SECONDS,
        )
        answered = {
            known.name
            for (known, _, _), reply in zip(asked, replies, strict=False)
            if not isinstance(reply, Failure) or not reply.slow
        }
        readings = {known.name: Reading(known.name) for known in up}
        for (known, name, _), reply in zip(asked, replies, strict=False):
            if (good := self._good(known, name, reply)) is not None:
                try:
                    readings[known.name].measures[name] = tpu_messages.measures(good)
                except WireError:
                    self._failures["bad_reply"] += 1
        for known, reply in zip(states, replies[len(asked) :], strict=True):
            if (good := self._good(known, _STATUS, reply)) is not None:
                try:
                    readings[known.name].states = tpu_messages.core_states(good)
                except WireError:
                    self._failures["bad_reply"] += 1
        for known in up:
            self._notice_restart(known, readings[known.name])
            known.slow = known.name not in answered
            known.up = known.up and not known.slow
            if not known.up:
                log.info("TPU runtime %s does not answer any more", known.name)
                known.gone()
        return [readings[known.name] for known in up if known.up]

    def _greet(self, grpc: ModuleType, silent: Sequence[_Known]) -> None:
        replies = tpu_client.ask(
            grpc,
            [
                (known.runtime, "ListSupportedMetrics", tpu_messages.list_request())
                for known in silent
            ],
            _SECONDS,
        )
        for known, reply in zip(silent, replies, strict=True):
            if isinstance(reply, Failure) and not reply.unknown:
                known.slow = reply.slow
                if known.slow:
                    self._failures["runtime_slow"] += 1
                known.gone()
                continue
            known.slow = False
            if isinstance(reply, bytes):
                try:
                    known.further = further_names(tpu_messages.names(reply))
                except WireError:
                    self._failures["bad_reply"] += 1
            known.up = known.met = True

    def _good(self, known: _Known, name: str, reply: Reply) -> bytes | None:
        """
        Return a reply; take note of a failure.
        """
        if isinstance(reply, bytes):
            return reply
        if reply.unknown:
            log.debug("TPU runtime %s has no %s: %s", known.name, name, reply.code)
            known.unknown.add(name)
        elif reply.slow:
            # Not gone: other replies may come, and are what one wants to see now.
            self._failures["runtime_slow"] += 1
        elif reply.code == "UNAVAILABLE":
            known.up = False
        else:
            self._failures["request_failed"] += 1
        return None

    def _notice_restart(self, known: _Known, reading: Reading) -> None:
        uptime = max(reading.values(UPTIME), default=0.0)
        if uptime < known.uptime:
            known.renew()
        known.uptime = uptime

    def _layout(self, readings: Sequence[Reading]) -> tuple[list[str], int]:
        """
        Return the uuids of the chips in order, and how many cores each has.

        Where the PCI bus is hidden, by their numbers: a runtime tells the memory of
        each core, and the duty cycle of each chip.
        """
        known = list(self._chips.values())
        if known:
            return [chip.uuid for chip in known], known[0].model.cores
        return _guessed(readings)

    def _identity(self, present: set[str]) -> list[Family]:
        info, up = ACCELERATOR_INFO, ACCELERATOR_UP
        known = self._chips.values()
        return [
            Family(
                info,
                [
                    (
                        series(
                            info,
                            chip.uuid,
                            chip.index,
                            "google",
                            chip.model.name,
                            "",
                            chip.pci_bus_id,
                        ),
                        1.0,
                    )
                    for chip in known
                ],
            ),
            Family(
                up,
                [
                    (series(up, chip.uuid), float(chip.uuid in present))
                    for chip in known
                ],
            ),
        ]

    def _owned(self, chips: Sequence[Chip]) -> list[Family]:
        """
        Return who has the chips open; looked up now and then, for it takes a while.
        """
        now = self._clock()
        if self._owners_at is None or now - self._owners_at >= _OWNERS_EVERY:
            nodes = frozenset(chip.node for chip in chips if chip.node)
            self._owners = tpus.owners(self._root, nodes) if nodes else {}
            self._owners_at = now
        return [
            gauge(TPU_OWNER_PID, self._owners[chip.node], chip.uuid)
            for chip in chips
            if chip.node in self._owners
        ]

    def _up(self) -> list[Family]:
        """
        Return which runtimes answer: those that ever did, or the usual one.
        """
        listed = [known for known in self._known if known.met or self._configured]
        listed = listed or self._known[:1]
        return [gauge(TPU_RUNTIME_UP, float(known.up), known.name) for known in listed]

    def _watch(self, figures: Figures) -> None:
        """
        Log where cores stand that do not move on while programs wait.
        """
        states = list(figures.states())
        hung = self._hangs.look(states)
        if not hung or self._grpc is None:
            return
        by_name = {known.name: known.runtime for known in self._known}
        wanted = sorted({runtime for _, _, runtime, _ in hung})
        request = tpu_messages.status_request(words=True)
        replies = tpu_client.ask(
            self._grpc,
            [(by_name[runtime], _STATUS, request) for runtime in wanted],
            _SECONDS,
        )
        words: dict[tuple[str, int, int], str] = {}
        for runtime, reply in zip(wanted, replies, strict=True):
            if isinstance(reply, bytes):
                try:
                    for state in tpu_messages.core_states(reply):
                        words[runtime, state.chip, state.core] = state.location
                except WireError:
                    self._failures["bad_reply"] += 1
        for uuid, core, runtime, state in hung:
            self._hangs.tell(
                uuid, core, state, words.get((runtime, state.chip, state.core))
            )


def _guessed(readings: Sequence[Reading]) -> tuple[list[str], int]:
    """
    Return names for chips that cannot be seen, and how many cores each has.
    """
    cores = chips = 0
    for reading in readings:
        cores += reading.count_cores()
        chips += reading.count_chips()
    per_chip = max(1, cores // chips) if chips else 1
    return [f"TPU-{index}" for index in range(cores // per_chip)], per_chip
