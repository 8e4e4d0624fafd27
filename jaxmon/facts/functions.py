"""
What jitted functions and their programs report.

How times of one kind vary, and whether they are longer than others, is defined here
only. Processes and runs have samples; `jaxmon.symptoms.steps` and Prometheus do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from jaxmon.facts.contents import (
    Captured,
    Copied,
    Folded,
    Inefficient,
    Resharded,
    Selected,
    Unreduced,
    Unrolled,
    WholeArrays,
)
from jaxmon.facts.record import NOTHING, Fact


LEAST_SECONDS = 2e-5
"""What is less is the resolution of clocks, and no slowdown."""

_LOW, _MIDDLE, _HIGH = 0.25, 0.5, 0.9
# Of the time of a call; and FLOPs or bytes that any device has done in a second.
_SHORT, _LEAST = 3.0, 1e9


class Spread(Fact):
    """Lower quartile, median, and 90th percentile of so many times, in seconds."""

    count: int = 0
    low: float = 0.0
    middle: float = 0.0
    high: float = 0.0

    def limit(self, margin: float) -> float:
        """
        Return what only slower times exceed, not those that vary as these do; *margin*
        is `Limits.slower`.
        """
        return self.high * (1 + margin) + LEAST_SECONDS

    def over(self, before: Spread) -> float:
        """Return how many times as long these times are as those *before*."""
        return self.middle / max(before.middle, 1e-9)

    def slower_than(self, before: Spread, margin: float) -> bool:
        """Return whether these times are longer than those *before*, beyond noise."""
        return self.low > before.limit(margin)


def spread_of(times: Sequence[float]) -> Spread | None:
    """Return the spread of *times*, `None` without any."""
    ordered = sorted(times)
    last = len(ordered) - 1
    found = (ordered[round(q * last)] for q in (_LOW, _MIDDLE, _HIGH))
    return Spread(len(ordered), *found) if ordered else None


class Obstacle(Fact):
    """One reason why the persistent cache misses; *where* is a line of the program."""

    reason: str = ""
    message: str = ""
    advice: str = ""
    where: str = ""


class Requests(Fact):
    """How often the persistent cache had a program, and how often not."""

    hit: int = 0
    miss: int = 0


class Phase(Fact):
    """One phase of compiling: how long it took in all, and how often it ran."""

    seconds: float = 0.0
    count: int = 0


class Checks(Fact):
    """Checks of one kind, by outcome."""

    passed: int = 0
    failed: int = 0


class Determinism(Fact):
    """
    Whether a function returns the same outputs for the same inputs.

    Attributes:
        deviation: the largest relative one in the last check, ``inf`` if infinite.
        devices: failed checks, by the device on which outputs differed, if not on all.
        key_reuse: how often a PRNG key was used twice.
        not_repeated: reason why `shadow_interval` skips it.
    """

    checks: Checks = Checks()
    deviation: Any = None
    gradient_checks: Checks = Checks()
    devices: Mapping[str, int] = NOTHING
    key_reuse: int = 0
    not_repeated: str = ""


class Output(Fact):
    """
    An output of a function that is not as it should be, as in `jaxmon.agent.checks`.

    Attributes:
        name: where it is in what the function returns.
        state: ``nonfinite``, ``infinite``, ``always_nan``, ``differs``; of a state,
            ``overflowed`` or ``rounded``.
        samples: those without a finite value, or with copies that differ, up to the
            latest; those of a state, which is of *dtype*.
        call: number of the first of these calls, and *time*, its Unix time.
        finite_call: number of the last call before that, and *finite_value*, that of a
            scalar.
        recovered: how often it became finite again.
        where: the line that computes a state, or of the call, if the program held the
            result at its end; *call* is unknown then.
        fraction: of its elements, all of size *least* or more, that do not change.
    """

    name: str = ""
    state: str = ""
    samples: int = 0
    call: int = 0
    time: float = 0.0
    finite_call: int = 0
    finite_value: float | None = None
    recovered: int = 0
    dtype: str = ""
    where: str = ""
    fraction: float = 0.0
    least: float = 0.0


class Frozen(Fact):
    """
    A state that a function returns, and that does not change, or not any more.

    Attributes:
        outputs: where what is read of it is in what the function returns, or arguments.
        call: number of the first call that returned it so, and *calls*, those since.
        samples: those of them in which it was read.
        counts: integers among the outputs that count what is not finite, by name.
        where: the line of the program that guards its updates, or makes them zero.
    """

    outputs: tuple[str, ...] = ()
    call: int = 0
    calls: int = 0
    samples: int = 0
    counts: Mapping[str, int] = NOTHING
    where: str = ""


class Repeated(Fact):
    """
    *arguments* that do not advance in *samples* over so many *calls*: of a *kind*,
    ``state``, the same arrays that the function updates, ``batch``, made anew each time
    with the same values, or ``work``, the same arrays from which alone an *operation*
    follows, and others like it, *ratio* of all. *counts*: whether it also returns a
    count of its own; *where*: a line that calls it, or has the operation.
    """

    kind: str = ""
    arguments: tuple[str, ...] = ()
    samples: int = 0
    calls: int = 0
    counts: bool = False
    operation: str = ""
    ratio: float = 0.0
    where: str = ""


class Padded(Fact):
    """
    An *argument*, of a type and shape, of which a *ratio* is the value that its rows
    end with, on average of *samples*.
    """

    argument: str = ""
    array: str = ""
    ratio: float = 0.0
    samples: int = 0


class Numerics(Fact):
    """
    Values read from outputs, programs in float64, the state if *frozen*, and arguments
    that are *repeated* or *padded*.
    """

    values: int = 0
    nonfinite: int = 0
    float64_programs: int = 0
    outputs: tuple[Output, ...] = ()
    frozen: Frozen = Frozen()
    repeated: Repeated = Repeated()
    padded: Padded = Padded()


class Keys(Fact):
    """
    For how many samples, and calls, a function has had the same PRNG key; *where*: a
    line that calls it.
    """

    samples: int = 0
    calls: int = 0
    where: str = ""


class Program(Fact):
    """
    XLA's analysis of a function's latest program; `None` if unknown.

    Attributes:
        programs: number of different programs of the function, among those *read*.
        fingerprint: equal for equal programs, whichever process compiled them.
        finished: Unix time when it was compiled or loaded, 0 if unknown.
        devices: number of devices it runs on, of all processes.
        model_flops: those of products of matrices and convolutions, on all devices.
        recomputed_flops: those of them that `jax.checkpoint` computes once more.
        double: whether one has a matrix product or convolution of float64, which
            *double_at* enables; *promoted_at* makes the first array of it.
        unrolled: the loop that is most of it, if one is.
        folded: what it computes of constants, if it does.
        captured: arrays that it takes from around the function, if they are large.
        selected: branches that it computes in vain, if it does.
        whole: arrays that each device holds whole, though it need not.
        resharded: arguments that it divides otherwise than they are.
        duplicated: whether all its devices compute the same, and exchange nothing.
        zeroed: arguments that it returns plus products with 0, and others with none.
        unused: arguments that it updates by a gradient, and returns no update of.
        redrawn_at: the line in a loop's body that draws the same numbers in each pass.
        widened_at: the line that multiplies arrays of float64 and of another type.
        unreduced: outputs that devices are said to have alike, and do not.
        inefficient: an operation in it that has a cheaper form.
        copied: what it copies, for it must not write into its arguments.
    """

    programs: int | None = None
    read: int = 0
    fingerprint: str | None = ""
    finished: float = 0.0
    devices: int | None = None
    instructions: int | None = None
    fusions: int | None = None
    flops: float | None = None
    model_flops: float | None = None
    recomputed_flops: float | None = None
    accessed_bytes: float | None = None
    argument_bytes: float | None = None
    output_bytes: float | None = None
    temporary_bytes: float | None = None
    peak_bytes: float | None = None
    code_bytes: float | None = None
    double: bool = False
    double_at: str = ""
    promoted_at: str = ""
    unrolled: Unrolled | None = None
    folded: Folded | None = None
    captured: Captured | None = None
    selected: Selected | None = None
    whole: WholeArrays | None = None
    resharded: Resharded | None = None
    duplicated: bool = False
    zeroed: Frozen | None = None
    unused: Frozen | None = None
    redrawn_at: str = ""
    widened_at: str = ""
    unreduced: Unreduced | None = None
    inefficient: Inefficient | None = None
    copied: Copied = Copied()


class Uncounted(Fact):
    """
    Why the FLOPs of a function are unknown.

    Attributes:
        reason: one of `catalog.FLOPS_UNKNOWN`.
        what: JAX's name of the operation.
        where: its line in the program, empty if unknown.
    """

    reason: str = ""
    what: str = ""
    where: str = ""


class Roofline(Fact):
    """
    Where a program is under the roofline of its devices (Williams et al., 2009).

    Attributes:
        intensity: FLOPs per byte that it accesses.
        ridge: FLOPs per byte from which on arithmetic bounds a program.
        bound: ``arithmetic`` or ``memory``.
    """

    intensity: float = 0.0
    ridge: float = 0.0
    bound: str = ""


class Utilization(Fact):
    """
    How near a function comes to what its devices can do; `None` if unknown.

    Attributes:
        achieved: model FLOP/s while it executes, on the devices of its process.
        of_peak: what fraction of their peak that is.
        open_loop: ``file:line`` of a loop in its latest program that runs until a
            condition is met; empty without one.
    """

    achieved: float | None = None
    of_peak: float | None = None
    roofline: Roofline | None = None
    unknown: Uncounted | None = None
    open_loop: str = ""


class Samples(Fact):
    """
    Sampled calls of a function; times are `None` if there are none.

    Attributes:
        samples: their number.
        dispatch_seconds: median time until a call returned.
        execution_seconds: median time that the device took.
        execution_mean: mean of those times, of which one is no large part.
    """

    samples: int = 0
    dispatch_seconds: float | None = None
    execution_seconds: float | None = None
    execution_mean: float | None = None


class Settled(Fact):
    """Seconds that a program takes: once it had settled, and lately."""

    settled_seconds: float = 0.0
    recent_seconds: float | None = None


class Counted(Fact):
    """Calls of a function, and those that found their program; `None` if unknown."""

    calls: int | None = None
    hits: int | None = None


class FunctionFact(Fact):
    """
    Statistics of one function; calls and hits are `None` if not counted.

    Attributes:
        place: where it is defined, ``path/file.py:12``.
        package: the installed package that defines it, empty if the program does.
        cache: requests for its programs to the persistent cache.
        spreads: how the latest sampled times vary, of ``dispatch`` and ``execution``.
        history: how long its programs take, by the shapes of their arguments.
    """

    name: str = ""
    internal: bool = False
    place: str = ""
    package: str = ""
    misses: int = 0
    compiles: Mapping[str, int] = NOTHING
    recompiles: Mapping[str, int] = NOTHING
    errors: Mapping[str, int] = NOTHING
    phases: Mapping[str, Phase] = NOTHING
    calls: int | None = None
    hits: int | None = None
    cache: Requests = Requests()
    program: Program = Program()
    flops: Utilization = Utilization()
    samples: Samples = Samples()
    spreads: Mapping[str, Spread] = NOTHING
    history: Mapping[str, Settled] = NOTHING
    numerics: Numerics = Numerics()
    determinism: Determinism = Determinism()
    keys: Keys = Keys()

    @property
    def compile_time(self) -> float:
        """Seconds of tracing, lowering and compiling."""
        return sum(phase.seconds for phase in self.phases.values()) - self.load_time

    @property
    def load_time(self) -> float:
        """Seconds of loading programs from the persistent cache."""
        return self.phases.get("cache_retrieval", Phase()).seconds

    @property
    def built(self) -> int:
        """Programs compiled or loaded, including failed attempts."""
        return sum(self.compiles.values())

    @property
    def never_called(self) -> bool:
        """Whether no call was counted although programs were compiled."""
        return self.calls == 0 and self.built > 0

    @property
    def device_seconds(self) -> float:
        """Seconds that the device computed it: mean execution time, times calls."""
        times, work = self.samples, self.program
        mean, whole = times.execution_mean or 0.0, times.execution_seconds or 0.0
        if whole < _SHORT * (times.dispatch_seconds or 0.0) and work.flops is not None:
            # It is the call that takes so long, unless the program has much to do.
            mean = min(mean, (work.flops + (work.accessed_bytes or inf)) / _LEAST)
        return mean * (self.calls or 0)

    def recompile_time(self, cause: str) -> float:
        """Seconds of compile time for *cause*, as if all compiles took as long."""
        part = self.recompiles.get(cause, 0) / max(self.built, 1)
        return self.compile_time * min(part, 1.0)
