"""The outcome of comparing results bit for bit."""

from __future__ import annotations

from dataclasses import dataclass


_MAX_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Deviation:
    """
    Deviation of one leaf of a result.

    Attributes:
        path: its path in the result, such as ``['loss']``; empty for a single array.
        dtype: of the first result; the type's name if it is not an array.
        shape: of the first result.
        differing: number of elements whose bits differ.
        size: number of elements.
        max_abs: largest absolute difference; infinite if a number was compared with a
            NaN or an infinity.
        max_relative: largest difference relative to the larger of the two values.
        max_ulp: largest number of representable values between the two; `None` for
            other than floating-point types.
        reason: why no elements could be compared; empty if they could.
        devices: ids of the devices that alone have other values, if some have not.
        replicas: whether replicas within one run were compared, not two runs.
    """

    path: str
    dtype: str
    shape: tuple[int, ...] = ()
    differing: int = 0
    size: int = 0
    max_abs: float = 0.0
    max_relative: float = 0.0
    max_ulp: int | None = None
    reason: str = ""
    devices: tuple[int, ...] = ()
    replicas: bool = False

    def __str__(self) -> str:
        where = f"output{self.path}: {self.dtype}{list(self.shape)}"
        if self.devices:
            devices = "device" if len(self.devices) == 1 else "devices"
            where += f" on {devices} {', '.join(map(str, self.devices))} only"
        if self.replicas:
            where += ", between its replicas"
        if self.reason:
            return f"{where}: {self.reason}"
        ulp = "" if self.max_ulp is None else f", {self.max_ulp:,} ulp"
        return (
            f"{where}: {self.differing:,} of {self.size:,} elements differ, by up "
            f"to {self.max_abs:.3g} ({self.max_relative:.3g} relative{ulp})"
        )


@dataclass(frozen=True, slots=True)
class DeterminismCheck:
    """
    Result of running a function several times on the same input.

    Truthy if all runs were bit-identical.

    Attributes:
        function: its label.
        runs: how often it ran.
        leaves: leaves of a result that were compared.
        deviations: leaves that differed, each with its largest deviation.
    """

    function: str
    runs: int
    leaves: int
    deviations: tuple[Deviation, ...] = ()

    @property
    def identical(self) -> bool:
        """Whether all runs gave the same outputs."""
        return not self.deviations

    @property
    def max_relative(self) -> float:
        """The largest relative deviation of any element."""
        return max((one.max_relative for one in self.deviations), default=0.0)

    @property
    def devices(self) -> tuple[int, ...]:
        """Ids of the devices that alone had other values in some output."""
        return tuple(sorted({id_ for one in self.deviations for id_ in one.devices}))

    def __bool__(self) -> bool:
        return self.identical

    def __str__(self) -> str:
        if self.identical:
            outputs = "output" if self.leaves == 1 else f"{self.leaves} outputs"
            return f"{self.function} gave the same {outputs} in {self.runs} runs"
        shown = [f"  {one}" for one in self.deviations[:_MAX_SHOWN]]
        if len(self.deviations) > _MAX_SHOWN:
            shown.append(f"  and {len(self.deviations) - _MAX_SHOWN} more")
        first = f"{self.function} gave different outputs in {self.runs} runs:"
        return "\n".join([first, *shown])


def merge_deviations(first: list[Deviation], more: list[Deviation]) -> list[Deviation]:
    """Merge two lists of deviations, keeping the larger for each leaf and kind."""
    worst = {(one.path, one.replicas): one for one in first}
    for one in more:
        known = worst.get((one.path, one.replicas))
        if known is None or one.max_relative > known.max_relative:
            worst[one.path, one.replicas] = one
    return list(worst.values())
