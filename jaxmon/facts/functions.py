"""What jitted functions, their programs and the persistent cache report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from jaxmon.facts.spread import Distribution


@dataclass(frozen=True, slots=True)
class Spread:
    """Quantiles of times, in seconds, and of how many."""

    count: int = 0
    low: float = 0.0
    middle: float = 0.0
    high: float = 0.0

    @property
    def distribution(self) -> Distribution:
        """The quantiles."""
        return Distribution(self.low, self.middle, self.high)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One reason why the persistent cache misses."""

    reason: str = ""
    message: str = ""
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Requests:
    """How often the persistent cache had a program, and how often not."""

    hit: int = 0
    miss: int = 0


@dataclass(frozen=True, slots=True)
class Cache:
    """
    The persistent compilation cache.

    Attributes:
        saved_seconds: compile time of hits, each rounded down to whole seconds, less
            the time to retrieve them; negative if that took longer.
    """

    enabled: bool | None = None
    directory: str = ""
    requests: Requests = field(default_factory=Requests)
    writes: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)
    saved_seconds: float = 0.0
    size_bytes: float | None = None
    entries: int | None = None
    obstacles: tuple[Obstacle, ...] = ()


@dataclass(frozen=True, slots=True)
class Signatures:
    """
    What functions were compiled for.

    Attributes:
        recorded: signatures that another process can compile ahead.
        omitted: compiles whose signature cannot be recorded.
        warmed: signatures that this process was warmed up with.
    """

    recorded: int = 0
    omitted: int = 0
    warmed: int = 0


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of compiling: how long it took in all."""

    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Checks:
    """Checks of one kind, those that failed."""

    failed: int = 0


@dataclass(frozen=True, slots=True)
class Determinism:
    """
    Whether a function returns the same outputs for the same inputs.

    Attributes:
        devices: failed checks, by the device on which outputs differed, if not on all.
        not_repeated: reason why `shadow_interval` skips it.
    """

    checks: Checks = field(default_factory=Checks)
    gradient_checks: Checks = field(default_factory=Checks)
    devices: Mapping[str, int] = field(default_factory=dict)
    not_repeated: str = ""


@dataclass(frozen=True, slots=True)
class Output:
    """
    An output of a function that is not finite, as in `jaxmon.agent.checks.outputs`.

    Attributes:
        name: where it is in what the function returns.
        state: ``nonfinite``, ``infinite`` or ``always_nan``.
        samples: those without a finite value, up to the latest.
        call: number of the first of these calls, and *time*, its Unix time.
        finite_call: number of the last call whose values were finite, and
            *finite_value*, that of a scalar.
        recovered: how often it became finite again.
    """

    name: str = ""
    state: str = ""
    samples: int = 0
    call: int = 0
    time: float = 0.0
    finite_call: int = 0
    finite_value: float | None = None
    recovered: int = 0


@dataclass(frozen=True, slots=True)
class Numerics:
    """Values read from a function's outputs, and its programs in float64."""

    values: int = 0
    nonfinite: int = 0
    float64_programs: int = 0
    outputs: tuple[Output, ...] = ()


@dataclass(frozen=True, slots=True)
class Keys:
    """For how many samples, and calls, a function has had the same PRNG key."""

    samples: int = 0
    calls: int = 0


@dataclass(frozen=True, slots=True)
class Program:
    """
    XLA's analysis of a function's latest program; `None` if unknown.

    Attributes:
        programs: number of different programs of the function.
        fingerprint: equal for equal programs, whichever process compiled them.
        finished: Unix time when it was compiled or loaded, 0 if unknown.
        devices: number of devices it runs on, of all processes.
        model_flops: those of products of matrices and convolutions, on all devices.
        recomputed_flops: those of them that `jax.checkpoint` computes once more.
        double: whether it multiplies matrices of float64, or convolves with them.
    """

    programs: int | None = None
    fingerprint: str = ""
    finished: float = 0.0
    devices: int | None = None
    flops: float | None = None
    model_flops: float | None = None
    recomputed_flops: float | None = None
    accessed_bytes: float | None = None
    temporary_bytes: float | None = None
    peak_bytes: float | None = None
    double: bool = False


@dataclass(frozen=True, slots=True)
class Uncounted:
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


@dataclass(frozen=True, slots=True)
class Roofline:
    """FLOPs per byte: of a program, and from which on arithmetic bounds it."""

    intensity: float = 0.0
    ridge: float = 0.0


@dataclass(frozen=True, slots=True)
class Utilization:
    """
    How near a function comes to what its devices can do; `None` if unknown.

    Attributes:
        achieved: model FLOP/s while it executes, on the devices of its process.
        of_peak: what fraction of their peak that is.
    """

    achieved: float | None = None
    of_peak: float | None = None
    roofline: Roofline | None = None
    unknown: Uncounted | None = None


@dataclass(frozen=True, slots=True)
class Function:
    """
    Statistics of one function; calls and hits are `None` if not counted.

    Attributes:
        place: where it is defined, ``path/file.py:12``.
        spreads: how the latest sampled times vary, of ``dispatch`` and ``execution``.
    """

    name: str = ""
    place: str = ""
    internal: bool = False
    calls: int | None = None
    hits: int | None = None
    misses: int = 0
    compiles: Mapping[str, int] = field(default_factory=dict)
    recompiles: Mapping[str, int] = field(default_factory=dict)
    errors: Mapping[str, int] = field(default_factory=dict)
    phases: Mapping[str, Phase] = field(default_factory=dict)
    program: Program = field(default_factory=Program)
    flops: Utilization = field(default_factory=Utilization)
    samples: Mapping[str, float] = field(default_factory=dict)
    spreads: Mapping[str, Spread] = field(default_factory=dict)
    numerics: Numerics = field(default_factory=Numerics)
    determinism: Determinism = field(default_factory=Determinism)
    keys: Keys = field(default_factory=Keys)

    @property
    def compile_time(self) -> float:
        """Seconds of tracing, lowering and compiling."""
        every = sum(phase.seconds for phase in self.phases.values())
        return every - self.load_time

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
        """
        Seconds that the device computed it: mean execution time, of which one sample is
        no large part, times calls.
        """
        return self.samples.get("execution_mean", 0.0) * (self.calls or 0)

    def recompile_time(self, cause: str) -> float:
        """Seconds of compile time for *cause*, as if all compiles took as long."""
        part = self.recompiles.get(cause, 0) / max(self.built, 1)
        return self.compile_time * min(part, 1.0)
