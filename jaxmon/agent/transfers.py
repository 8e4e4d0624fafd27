"""Transfers between host and device, and the source lines that make them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxmon import catalog
from jaxmon.agent.context import Context, Sample
from jaxmon.agent.functions import Function
from jaxmon.agent.jaxlink import transfer_hooks
from jaxmon.agent.jaxlink.call_sites import Direction, TransferSite
from jaxmon.agent.jaxlink.hooks import HookPlaces, Hooks
from jaxmon.agent.jaxlink.listeners import CallbackTimes
from jaxmon.agent.jaxlink.patches import SITE, MethodPatch, ModuleProxy, Record
from jaxmon.agent.part import Explanation, Part
from jaxmon.catalog import TRANSFER_DIRECTIONS
from jaxmon.clocks import monotonic
from jaxmon.exposition.families import Family, family_of, gauge
from jaxmon.host.sources import display_path
from jaxmon.threads import RLock


if TYPE_CHECKING:
    from jaxmon.facts import memory as facts


LINES = 50
"""Maximum number of source lines in a snapshot."""

# A line is reported once: when it has transferred this often, or when it has blocked
# the program for this share of its time, more than a few times.
OFTEN = 100
_SHARE = 0.01
_REPEATED = 10
_SETTLED_SECONDS = 10.0

# Minimum size of NumPy arguments of a call to be reported.
_OF_NUMPY = (np.ndarray, np.generic)
_LARGE_BYTES = 64 * 1024
# Samples of a function whose arrays are looked at, and after which an array that was in
# all is called the same, by its place and so many values.
_LOOKS, _SAMES, _FEW = 3, 3, 64

_PHRASES: dict[Direction, str] = {
    "device_to_host": "reads from the device",
    "host_to_device": "sends to the device",
    "sync": "synchronises with the device",
}


class HeldArrays:
    """
    The arrays of NumPy that sampled calls of a function get: bytes of large ones that
    were the same in all `samples`, and what one of them has lost with 32 bits.
    """

    def __init__(self) -> None:
        self.samples = self.nbytes = 0
        self.loss: transfer_hooks.Loss | None = None
        self._seen: frozenset[tuple[int, int, int]] = frozenset()

    def add(self, arrays: Sequence[Any], *, narrow: bool) -> None:
        """Add the *arrays* of one more call, which *narrow* makes ones of 32 bits."""
        large = [array for array in arrays if array.nbytes >= _LARGE_BYTES]
        seen = frozenset([_identity(array) for array in large])
        self._seen = self._seen & seen if self.samples else seen
        self.nbytes = sum([nbytes for _, nbytes, _ in self._seen])
        self.samples += 1
        if narrow and self.samples <= _LOOKS and self.loss is None:
            self.loss = next(filter(None, map(transfer_hooks.loss_of, arrays)), None)


def _identity(array: Any) -> tuple[int, int, int]:
    """Return where the data of an *array* is, and a hash of some of it."""
    few = array.flat[:: max(array.size // _FEW, 1)]
    return array.__array_interface__["data"][0], array.nbytes, hash(few.tobytes())


class TransferPart(Part):
    """
    Counts transfers and syncs, and reports source lines that keep making them.

    See `docs/transfers.md` for what can be observed and what cannot.
    """

    name = "transfers"

    def __init__(self, context: Context) -> None:
        self._context = context
        self._crossings: transfer_hooks.TransferHooks | None = None
        self._methods: list[MethodPatch] = []
        self._sites: dict[int, TransferSite] = {}
        self._arguments: dict[Function, int] = {}
        self._held: dict[Function, HeldArrays] = {}
        self._totals: dict[str, list[int]] = {
            direction: [0, 0, 0] for direction in (*TRANSFER_DIRECTIONS, "sync")
        }
        # Reentrant: a signal handler may make a transfer while this thread holds it.
        self._lock = RLock()
        self._since = monotonic()
        self._shortest = context.settings.traces_wait or inf
        context.observers.sample.append(self.sampled)
        context.observers.settling.append(self._fold)
        context.observers.timer.append(self._settle)

    def attach(self, hooks: Hooks) -> None:
        """Replace the functions of JAX that transfer data."""
        hooks.attach(SITE, self._take)

    def _take(self, at: HookPlaces) -> None:
        context = self._context
        guard, sites, observers = context.guard, context.sites, context.observers
        crossings = transfer_hooks.TransferHooks(
            context.jax, guard, self._fold, sites, observers
        )
        methods, functions = crossings.places()
        self._crossings = crossings
        self._since = monotonic()
        at.undo_by(self.detach)
        for place in methods:
            original = vars(place.owner)[place.name]
            method = MethodPatch(original, place.observe, place.allowance, guard)
            self._methods.append(method)
            at.replace(place.owner, place.name, method)
        for place in (*functions, *crossings.callback_places()):
            at.probe(*place)
        for module, name, steps in crossings.conversions():
            original = vars(module)[name]
            ours: dict[str, object] = {
                step.name: at.stand_in(vars(original)[step.name], *step[2:])
                for step in steps
            }
            at.replace(module, name, ModuleProxy(original, ours))

    def detach(self) -> None:
        """Stop observing and restore JAX's own functions."""
        for method in self._methods:
            method.active = False
        if self._crossings is not None:
            self._crossings.observes = False

    stop = detach

    def explain(self) -> Explanation:
        """Return the transfers and their source lines."""
        return Explanation({"transfers": self.snapshot})

    def snapshot(self) -> facts.Transfers:
        """Return the totals, and the source lines that blocked longest."""
        from jaxmon.facts import memory as facts  # noqa: PLC0415 - on request

        if self._crossings is None:
            return facts.Transfers()
        self._settle()
        sites = list(self._sites.values())
        sites.sort(key=lambda site: (site.nanoseconds, site.count))
        return facts.Transfers(
            directions={
                direction: facts.Crossings(**_named(self._totals[direction]))
                for direction in TRANSFER_DIRECTIONS
            },
            waits=facts.Crossings(**_named(self._totals["sync"])),
            arguments={
                function.name: nbytes
                for function, nbytes in self._arguments.copy().items()
            },
            lines=tuple(
                facts.Transfer(
                    file=display_path(site.file),
                    line=site.line,
                    direction=site.direction,
                    how=site.how,
                    **_figures(site),
                )
                for site in reversed(sites[-LINES:])
            ),
            same={
                function.name: held.nbytes
                for function, held in self._held.copy().items()
                if held.nbytes and held.samples >= _SAMES
            },
            callbacks=tuple(_callbacks(self._crossings.callbacks)),
            profiles=tuple(_callbacks(self._crossings.profiles)),
            narrowed=(
                *(
                    facts.Narrowed(place, "", *loss)
                    for place, loss in self._crossings.narrowed.copy().items()
                ),
                *(
                    facts.Narrowed("", function.name, *held.loss)
                    for function, held in self._held.copy().items()
                    if held.loss is not None
                ),
            ),
        )

    def collect(self) -> list[Family]:
        """Return the metrics of transfers and syncs."""
        if self._crossings is None:
            return []
        self._settle()
        waits, _, waited = self._totals["sync"]
        by_direction = [(d, self._totals[d]) for d in TRANSFER_DIRECTIONS]
        return [
            *(
                family_of(metric, [(d, total[i] * unit) for d, total in by_direction])
                for i, metric, unit in (
                    (0, catalog.HOST_TRANSFERS, 1),
                    (1, catalog.HOST_TRANSFER_BYTES, 1),
                    (2, catalog.HOST_TRANSFER_SECONDS, 1e-9),
                )
            ),
            gauge(catalog.HOST_SYNCS, waits),
            gauge(catalog.HOST_SYNC_SECONDS, waited * 1e-9),
        ]

    def sampled(self, sample: Sample) -> None:
        """
        Check a sampled call for NumPy arguments, which JAX transfers in C++,
        unobserved.

        They are reported, not counted: calls that are not sampled are unknown.
        """
        leaves = self._context.jax.tree_util.tree_leaves((sample.args, sample.kwargs))
        arrays = [
            view
            for view in map(transfer_hooks.trusted_view, leaves)
            if isinstance(view, _OF_NUMPY)
        ]
        sizes = [array.nbytes for array in arrays]
        nbytes, function = sum(sizes), sample.function
        held = self._held.get(function) or self._held.setdefault(function, HeldArrays())
        held.add(arrays, narrow=not self._context.jax.config.jax_enable_x64)
        if nbytes < _LARGE_BYTES or function in self._arguments:
            return
        self._arguments[function] = nbytes
        self._context.events.add(
            "transfer",
            function.name,
            f"{function.name} is called with NumPy arguments: each call transfers "
            f"{nbytes:,} bytes to the device and blocks meanwhile. The counters do "
            "not include these. Call jax.device_put on them ahead of time.",
            file="",
            line=0,
            how="argument",
            direction="host_to_device",
            count=len(sizes),
            bytes=nbytes,
        )

    def _settle(self) -> None:
        """Process what has been observed, and what passed since."""
        if self._crossings is not None:
            self._crossings.settle()
            self._fold()

    def _fold(self) -> None:
        """Process pending records; about 1 µs each."""
        if self._crossings is None:
            return
        records, totals = self._crossings.records, self._totals
        long: list[Record] = []
        with self._lock:
            # Only those present now: another thread may keep adding.
            for _ in range(len(records)):
                if not records:  # a signal handler was faster
                    return
                # No calls from here to the end, so that an interrupt finds the record
                # either counted or still there.
                record = records[0]
                (site, weight, count, nbytes, started, place), ended = record
                # The program may have replaced the clock.
                spent = ended - started if ended > started else 0
                total = totals[site.direction]
                total[0] += weight * count
                total[1] += weight * nbytes
                passed = 0
                if weight > 1:
                    # One that was slow says nothing about those that passed before it.
                    passed = min((weight - 1) * spent, max(started - site.ended, 0))
                total[2] += spent + passed
                site.count += weight * count
                site.bytes += weight * nbytes
                site.nanoseconds += spent + passed
                site.ended, site.spent = ended, spent
                del records[0]
                self._sites[id(site)] = site
                if place is not None and spent >= self._shortest * 1e9:
                    long.append(record)
                if (
                    not site.reported
                    and site.count >= _REPEATED
                    and self._is_often(site)
                ):
                    site.reported = True
                    self._tell(site)

        for record in long:
            self._trace(record)

    def _trace(self, record: Record) -> None:
        (site, _, _, nbytes, started, place), ended = record
        tracer = self._context.observers.tracer
        if tracer is None or place is None:
            return
        from jaxmon.otel.traces import spans as conventions  # noqa: PLC0415 - with traces

        name = conventions.SYNC
        attributes: dict[str, str | int] = {conventions.HOW: site.how}
        if site.direction != "sync":
            name = f"{conventions.TRANSFER} {site.direction}"
            attributes[conventions.BYTES] = nbytes
        if site.file:
            attributes[conventions.FILE] = display_path(site.file)
            attributes[conventions.LINE] = site.line
        tracer.add(
            conventions.Child(name, started / 1e9, ended / 1e9, attributes), place
        )

    def _is_often(self, site: TransferSite) -> bool:
        if not site.file or site.count >= OFTEN:
            return bool(site.file)
        lived = monotonic() - self._since
        return lived >= _SETTLED_SECONDS and site.nanoseconds >= lived * _SHARE * 1e9

    def _tell(self, site: TransferSite) -> None:
        lived = max(monotonic() - self._since, 1e-9)
        figures = _figures(site)
        file, how = display_path(site.file), _PHRASES[site.direction]
        moved = f", {site.bytes:,} bytes" if site.bytes else ""
        self._context.events.add(
            "transfer",
            None,
            f"{file}:{site.line} {how} repeatedly ({site.how}): {site.count:,} "
            f"times{moved}, blocked for {figures['seconds']:.3g} s, "
            f"{min(figures['seconds'] / lived, 1):.1%} of the time",
            file=file,
            line=site.line,
            how=site.how,
            direction=site.direction,
            **figures,
        )


def _callbacks(found: dict[str, CallbackTimes]) -> Iterator[facts.Callback]:
    from jaxmon.facts import memory as facts  # noqa: PLC0415 - on request

    for place, times in found.copy().items():
        times.add_up()
        if times.count:
            yield facts.Callback(place, times.count, times.nanoseconds / 1e9)


def _figures(site: TransferSite) -> dict[str, Any]:
    return _named((site.count, site.bytes, site.nanoseconds))


def _named(figures: Sequence[int]) -> dict[str, Any]:
    count, nbytes, spent = figures
    return {"count": count, "bytes": nbytes, "seconds": spent / 1e9}
