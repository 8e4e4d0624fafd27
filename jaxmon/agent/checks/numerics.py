"""
Detects non-finite outputs and unintended float64 computation.

Small outputs of sampled calls, such as a loss, are read with NumPy by a thread once
they are ready. Nothing is compiled or computed on the device. Float64 computation is
detected in the HLO.

The small floating-point outputs of one function, from sample to sample. Most programs
return values that are not finite on purpose somewhere: masked logits, markers of
missing data, the initial value of a minimum. What was finite and has no finite value
left, sample after sample, is a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import takewhile
from math import inf
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from jaxmon import catalog
from jaxmon.agent.checks.arrays import Pending, address_of, array_of, reading
from jaxmon.agent.checks.padding import Padding
from jaxmon.agent.checks.repeats import Repeats
from jaxmon.agent.checks.states import States
from jaxmon.agent.context import Context, Sample
from jaxmon.agent.functions import Function, by_function
from jaxmon.agent.jaxlink import backends
from jaxmon.agent.jaxlink.arrays import is_pollable, is_ready_or_deleted
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder
from jaxmon.agent.part import Explanation, Part
from jaxmon.agent.worker import Watcher
from jaxmon.clocks import monotonic, perf_counter, thread_time, wall_time
from jaxmon.exposition.families import Family, Tally
from jaxmon.facts import functions as facts


# Structures of outputs remembered for one function: those of its programs.
_MOST_STRUCTURES = 8

CONFIRMED = 2
"""
Consecutive samples without a finite value that make a failure: a single one may be a
step that dynamic loss scaling skips.
"""
# The same for outputs that have been NaN in every sample.
_NEVER_FINITE = 3


class OutputReading(NamedTuple):
    """One output, read; *value* of a scalar; whether its copies on devices differ."""

    size: int
    finite: int
    nan: bool
    value: float | None
    differs: bool = False


class OutputHistory:
    """
    One output of a function.

    Attributes:
        name: where it is in what the function returns, such as ``[1]['loss']``.
        last_finite: call and value of the last sample that had only finite values; the
            value is `None` unless it is a scalar.
        lost: call and Unix time of the first sample since then without a finite value.
        run: number of these samples, up to the latest.
        nan: whether the latest of these had a NaN.
        differed: number of samples, up to the latest, in which copies differed.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.scalar = False
        self.samples = self.run = self.recovered = self.differed = 0
        self.last_finite: tuple[int, float | None] | None = None
        self.lost: tuple[int, float] | None = None
        self.nan = False

    def add(self, reading: OutputReading, call: int) -> None:
        """Add the *reading* of an output of *call*, counted from 1."""
        self.samples += 1
        self.differed = self.differed + 1 if reading.differs else 0
        self.scalar = reading.size == 1
        if reading.finite:
            self.recovered += self.run > 0 and self.last_finite is not None
            self.run, self.lost = 0, None
            if reading.finite == reading.size:
                self.last_finite = call, reading.value
            return
        self.run += 1
        self.nan = reading.nan
        if self.lost is None:
            self.lost = call, wall_time()

    @property
    def state(self) -> str:
        """
        ``nonfinite`` if it was finite and is NaN now, ``infinite`` if it is infinite
        now, ``differs`` if its copies differ, ``always_nan`` for a scalar that has
        never been anything else, ``""`` if there is nothing to report.
        """
        if self.last_finite is not None and self.run >= CONFIRMED:
            return "nonfinite" if self.nan else "infinite"
        if self.differed >= CONFIRMED:
            return "differs"
        never = self.scalar and self.nan and self.run >= _NEVER_FINITE
        is_all = self.last_finite is None and self.run == self.samples
        return "always_nan" if never and is_all else ""

    def explain(self) -> facts.Output:
        """Return what there is to report."""
        ends: dict[str, Any] = {}
        if self.lost is not None:
            ends["call"], ends["time"] = self.lost
        if self.last_finite is not None:
            ends["finite_call"], ends["finite_value"] = self.last_finite
        return facts.Output(
            name=self.name,
            state=self.state,
            samples=self.run or self.differed,
            recovered=self.recovered,
            **ends,
        )


class Outputs:
    """The outputs of a function, for one thread, and what it *held* at the end."""

    def __init__(self) -> None:
        self._histories: dict[tuple[str, ...], tuple[OutputHistory, ...]] = {}
        self.checked = self.nonfinite = 0
        self.was_finite = True
        self.held: list[facts.Output] = []

    def of(self, names: tuple[str, ...]) -> tuple[OutputHistory, ...]:
        """Return the outputs called *names*, none if there are too many structures."""
        outputs = self._histories.get(names)
        if outputs is None and len(self._histories) < _MOST_STRUCTURES:
            outputs = self._histories[names] = tuple(map(OutputHistory, names))
        return outputs or ()

    def end(self, names: Collection[str], where: str) -> None:
        """Note that the program held NaN, of one of *names*, if all were finite."""
        every = {o.name: o for outputs in self._histories.values() for o in outputs}
        found = [every[name] for name in names if name in every]
        finite = [o.last_finite for o in found if o.last_finite and not o.state]
        if len(finite) == len(names):
            call, value = min(finite, key=itemgetter(0))
            held = facts.Output(name=" or ".join(names), state="nonfinite", where=where)
            value = None if finite[1:] else value
            self.held.append(held.replace(finite_call=call, finite_value=value))

    def troubled(self) -> list[OutputHistory]:
        """Return the outputs with something to report, scalars first."""
        every = [o for outputs in list(self._histories.values()) for o in outputs]
        return sorted((o for o in every if o.state), key=lambda o: not o.scalar)


# The label of a function, and a shape and dtype of its outputs.
_Kind: TypeAlias = tuple[str | None, Any, Any]
# Maximum number of elements of an output that is read, and of outputs of one call.
_ELEMENTS = 1024
_READ = 8
# Number of outputs at either end that are searched for them: a training step returns
# its loss before or after a large state.
_ENDS = 32
# At the end: elements of a tensor, at least, and seconds for all that is live, at most.
_TENSOR, _LOOK_SECONDS = 4, 0.02
# Seconds between two reads of a function whose calls all leave the fast path.
_INTERVAL = 1.0

# Maximum length of the name of an output, and number of structures of which the names
# are kept.
_NAME = 100
_STRUCTURES = 1000


class NumericsPart(Part):
    """Detects outputs that became non-finite, and promotions to float64."""

    name = "numerics"

    def __init__(self, context: Context, watcher: Watcher) -> None:
        self._guard = context.guard
        self._jax = context.jax
        self._events = context.events
        self._budget = context.scheduler.budget
        self._watcher = watcher
        self._outputs: dict[Function, Outputs] = {}
        self._promotions: dict[Function, Tally] = {}
        self._missed: dict[Function, float] = {}
        self._floats: dict[Any, bool] = {}
        self._names: dict[tuple[Function, int], list[str]] = {}
        self._sites = context.sites
        self._lines = SourceLineFinder(context.jax)
        # The names of a function's outputs of one shape and dtype.
        self._kinds: dict[_Kind, dict[str, None]] = {}
        self._states = States(
            context, watcher, is_float=self._is_small_float, names=self._names_of
        )
        self._repeats, self._padding = Repeats(context, self._lines), Padding(context)
        context.observers.promotion.append(self.promoted)
        if context.settings.nonfinite:
            context.observers.sample.append(self.sampled)
            context.observers.returned.append(self.returned)

    def sampled(self, sample: Sample) -> None:
        """Have the small outputs of *sample* read once they are ready."""
        self._submit(sample.function, sample.outputs)
        self._states.sampled(sample)
        self._repeats.sampled(sample)
        self._padding.sampled(sample)

    def returned(self, function: Function, outputs: Callable[[], Any]) -> None:
        """Have outputs read of a call that missed: the first shows what is right."""
        if not self._budget.covers():
            return  # should it be called often, samples are read
        now = monotonic()
        if now - self._missed.get(function, -_INTERVAL) >= _INTERVAL:
            self._missed[function] = now
            self._submit(function, outputs())

    def read(
        self, function: Function, call: int, leaves: Sequence[tuple[str, Any]]
    ) -> None:
        """Read *leaves*, outputs of a *call* of *function* by name, which are ready."""
        began = thread_time()
        outputs = self._outputs.setdefault(function, Outputs())
        histories = outputs.of(tuple([name for name, _ in leaves]))
        with reading(self._jax):
            found = [_reading(leaf) for _, leaf in leaves]
        pairs = zip(histories, found, strict=False)
        judged = [(output, value) for output, value in pairs if value is not None]
        for output, value in judged:
            output.add(value, call)
        total = sum(value.size for _, value in judged)
        bad = total - sum(value.finite for _, value in judged)
        outputs.checked += total
        outputs.nonfinite += bad
        if bad and outputs.was_finite:
            self._events.add(
                "numerics",
                function.name,
                f"{bad} of {total} values in a call's outputs are non-finite",
                nonfinite=bad,
                values=total,
                call=call,
            )
        outputs.was_finite = not bad
        self._budget.spend(began)

    def refresh(self, *, asked: bool) -> None:
        """
        Unless *asked*, the program has ended: look at the results that it still holds.

        One NaN may be of a step that loss scaling skips. So there must be a tensor
        without a finite value, and none of its kind with one, or NaN in two calls.
        """
        if asked or not (backends.initialised(self._jax) and self._guard.on(self.name)):
            return
        with reading(self._jax):
            held = self._held()
        outputs = {f.name: of for f, of in self._outputs.copy().items()}
        names = {kind: self._kinds.get(kind, {}) for kind in held}
        runs = {
            kind: len([*takewhile(lambda of: of[0].nan and not of[0].finite, found)])
            for kind, found in held.items()
        }
        # Outputs of one call are in any order.
        least = {kind: min(len(names[kind]) or 1, len(held[kind])) for kind in held}
        finite = {kind[1:] for kind, run in runs.items() if run < least[kind]}
        tensors = {k[1:] for k, of in held.items() if of[0][0].size >= _TENSOR}
        is_lost = not tensors <= finite
        for kind, run in runs.items():
            number = 1 if is_lost else len(names[kind]) + 1
            if names[kind] and run >= number and kind[0] in outputs:
                outputs[kind[0]].end(names[kind], held[kind][0][1])

    def _held(self) -> dict[_Kind, list[tuple[OutputReading, str]]]:
        """
        Return live results of cached calls, by kind, the newest first, with lines; of
        what others made, such as updates outside of jit, only what is newer than those.
        """
        held: dict[_Kind, list[tuple[OutputReading, str]]] = {}
        until, seen = perf_counter() + _LOOK_SECONDS, set[int]()
        for array in self._jax.live_arrays():
            calls = getattr(array, "traceback", None)
            if calls is None or not self._is_small_float(array, inf):
                continue
            name = self._sites.called(calls)
            kind = name, array.shape, array.dtype
            on_host = all([device.platform == "cpu" for device in array.devices()])
            is_older = name is None and any(kind[1:] == of[1:] for of in held)
            if is_older or not on_host or len(held.get(kind, ())) > _READ:
                continue
            if perf_counter() > until or not is_ready_or_deleted(array):
                return {}
            # A view has the traceback of the call: of the program's, or of ours that is
            # being read by another thread.
            value, address = _reading(array), address_of(array)
            if value is not None and address not in seen:
                seen.add(address)
                held.setdefault(kind, []).append((value, self._lines.place_of(calls)))
        return held

    def promoted(self, function: Function) -> None:
        """Count a program that computes in float64 without float64 arguments."""
        if function.internal:
            return
        self._promotions.setdefault(function, Tally()).add()
        self._events.add(
            "numerics",
            function.name,
            "a program computes in float64 although no argument is float64; look "
            "for NumPy values, Python floats converted to arrays, and missing "
            "dtypes",
        )

    def stop(self) -> None:
        """Stop the thread."""
        self._watcher.stop()

    def explain(self) -> Explanation:
        """Return the values found."""
        return Explanation(functions={"numerics": self.snapshot})

    def snapshot(self) -> dict[str, facts.Numerics]:
        """Return the values found, by function."""
        lost, repeated = self._states.lost(), self._repeats.all()
        padded = self._padding.all()
        others = dict.fromkeys(lost | repeated | padded, Outputs())
        checked = others | self._outputs.copy()
        found = {
            function.name: facts.Numerics(
                values=outputs.checked,
                nonfinite=outputs.nonfinite,
                outputs=(
                    *[output.explain() for output in outputs.troubled()],
                    *outputs.held,
                    *lost.get(function, ()),
                ),
                frozen=self._states.of(function),
                repeated=repeated.get(function, facts.Repeated()),
                padded=padded.get(function, facts.Padded()),
            )
            for function, outputs in checked.items()
        }
        for function, tally in self._promotions.copy().items():
            fact = found.get(function.name, facts.Numerics())
            found[function.name] = fact.replace(float64_programs=tally.value)
        return found

    def collect(self) -> list[Family]:
        """Return the metrics of numerics."""
        checked = list(self._outputs.copy().items())
        return [
            by_function(
                catalog.NONFINITE, [(f, found.nonfinite) for f, found in checked]
            ),
            by_function(catalog.NONFINITE_OUTPUTS, [(f, _lost(o)) for f, o in checked]),
            by_function(
                catalog.FLOAT64_PROMOTIONS,
                [(f, tally.value) for f, tally in self._promotions.copy().items()],
            ),
        ]

    # --- inside ------------------------------------------------------------------

    def _submit(self, function: Function, outputs: Any) -> None:
        """Have the smallest floating-point outputs read, a few of them."""
        leaves = self._jax.tree_util.tree_leaves(outputs)
        number = len(leaves)
        ends = {*range(min(number, _ENDS)), *range(max(number - _ENDS, 0), number)}
        small = [n for n in ends if self._is_small_float(leaves[n])]
        if not small:
            return
        small.sort(key=lambda n: leaves[n].size)
        names = self._names_of(function, outputs, number)
        # A call is counted before it is made.
        call = function.objects.calls or function.other_missed.value
        read = [(names[n], leaves[n]) for n in sorted(small[:_READ])]
        ready = partial(self.read, function, call, read)
        self._watcher.submit(Pending([leaf for _, leaf in read], ready))

    def _names_of(self, function: Function, outputs: Any, number: int) -> list[str]:
        """Return where in *outputs* each of its leaves is; a *number* of them."""
        names = self._names.get((function, number))
        if names is None:
            tree = self._jax.tree_util
            found, _ = tree.tree_flatten_with_path(outputs)
            names = [tree.keystr(path)[:_NAME] for path, _ in found]
            if len(self._names) < _STRUCTURES:
                self._names[function, number] = names
                for name, (_, leaf) in zip(names, found, strict=True):
                    if self._is_small_float(leaf, inf):
                        kind = function.name, leaf.shape, leaf.dtype
                        self._kinds.setdefault(kind, {})[name] = None
        return names

    def _is_small_float(self, leaf: Any, most: float = _ELEMENTS) -> bool:
        if not isinstance(leaf, self._jax.Array) or not is_pollable(leaf):
            return False
        dtype = leaf.dtype
        is_float = self._floats.get(dtype)
        if is_float is None:
            numpy = self._jax.numpy
            is_float = self._floats[dtype] = numpy.issubdtype(dtype, numpy.inexact)
        return is_float and 0 < leaf.size <= most


def _reading(leaf: Any) -> OutputReading | None:
    """Return what is in *leaf*, `None` if it was deleted or its program failed."""
    try:
        values, differs = array_of(leaf), leaf.size <= _ELEMENTS and _differs(leaf)
    except Exception:  # noqa: BLE001 - as it is wherever the program reads it
        return None
    if values.size > _ELEMENTS:
        values = values.flat[:_ELEMENTS]
    finite = int(np.isfinite(values).sum())
    nan = finite < values.size and bool(np.isnan(values).any())
    scalar = values.size == 1 and finite and values.dtype.kind != "c"
    value = float(values.reshape(())) if scalar else None
    return OutputReading(values.size, finite, nan, value, differs)


def _differs(leaf: Any) -> bool:
    """Return whether copies on the first and the last device have different bytes."""
    if not leaf.is_fully_replicated or len(leaf.sharding.addressable_devices) == 1:
        return False
    last = leaf.addressable_shards[-1].data
    return bool(array_of(leaf).tobytes() != array_of(last).tobytes())


def _lost(outputs: Outputs) -> int:
    """Return how many of *outputs* were finite and are NaN: none for most functions."""
    if not outputs.nonfinite:
        return 0
    return sum(output.state == "nonfinite" for output in outputs.troubled())
