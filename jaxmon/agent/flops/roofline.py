"""
What calls need, what devices can do, and how near a function comes to that.

Peaks are dense products per second by format of the operands, and bytes from
memory per second.

Vendors often print twice as much, for matrices of which half is zeros; here is the half
of that. A device, or a format, that is not in the table is unknown: a part of a GPU
(MIG), a virtual GPU or another variant of the same chip has another name, and another
peak.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from jaxmon import catalog
from jaxmon.agent.jaxlink.flops import Flops
from jaxmon.agent.sampling.execution import SteadyPace
from jaxmon.facts.functions import Roofline
from jaxmon.threads import Lock


# Documents of the vendors.
_HOPPER = "NVIDIA H100 Tensor Core GPU Architecture (white paper), table 3"
_H100 = "NVIDIA H100 Tensor Core GPU (data sheet), with sparsity"
_H200 = "NVIDIA H200 Tensor Core GPU (data sheet), with sparsity"
_GH200 = "NVIDIA GH200 Grace Hopper Superchip (data sheet), with sparsity"
_HGX = "NVIDIA HGX platform (specifications), B200, with sparsity; for eight GPUs"
_GB200 = "NVIDIA GB200 NVL72 (specifications), with sparsity; for two GPUs"
_A100 = "NVIDIA A100 Tensor Core GPU (data sheet)"
_A30 = "NVIDIA A30 Tensor Core GPU (data sheet)"
_A40 = "NVIDIA A40 (data sheet)"
_A10 = "NVIDIA A10 Tensor Core GPU (data sheet)"
_L4 = "NVIDIA L4 Tensor Core GPU (data sheet), with sparsity"
_L40 = "NVIDIA L40 (data sheet)"
_L40S = "NVIDIA L40S (data sheet)"
_V100 = "NVIDIA V100 Tensor Core GPU (data sheet)"
_T4 = "NVIDIA T4 Tensor Core GPU (data sheet)"
_MI200 = "AMD Instinct MI200 series (data sheet); half of an MI250X is a device"
_MI300 = "AMD Instinct MI300X (data sheet)"
_MI325 = "AMD Instinct MI325X (data sheet)"
_TPU = "Google Cloud documentation, Cloud TPU versions; per TensorCore"

_TERA, _GIGA = 1e12, 1e9

# Passes of `jax.lax.Precision` on a TPU, which multiplies float32 as bfloat16.
_PASSES = {"float32": 1, "float32/high": 3, "float32/highest": 6}
_NAMES = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "float8": "fp8",
    "int8": "int8",
    "tf32": "tf32",
    "float64": "fp64",
    "float32/highest": "fp32",
}


class Peak(NamedTuple):
    """A device's dense FLOP/s by format, bytes per second, and the document."""

    flops: Mapping[str, float]
    bandwidth: float
    source: str


FORMATS = ("bf16", "fp16", "fp8", "int8", "tf32", "fp32", "fp64")

# In the order of `FORMATS`, in TFLOP/s, 0 if there is none; then GB/s, and the source.
_ROWS: Mapping[
    str, tuple[float, float, float, float, float, float, float, int, str]
] = {
    # NVIDIA; without the word, which older drivers leave out.
    "GB200": (2500, 2500, 5000, 5000, 1250, 80, 40, 8000, _GB200),
    "B200": (2250, 2250, 4500, 4500, 1125, 75, 37, 8000, _HGX),
    "H200": (989.4, 989.4, 1978.9, 1978.9, 494.7, 66.9, 66.9, 4800, _H200),
    "H200 NVL": (835.5, 835.5, 1670.5, 1670.5, 417.5, 60, 60, 4800, _H200),
    "GH200 480GB": (989.4, 989.4, 1978.9, 1978.9, 494.7, 66.9, 66.9, 4000, _GH200),
    "GH200 144G HBM3e": (989.4, 989.4, 1978.9, 1978.9, 494.7, 66.9, 66.9, 4900, _GH200),
    "H100 80GB HBM3": (989.4, 989.4, 1978.9, 1978.9, 494.7, 66.9, 66.9, 3352, _HOPPER),
    "H100 NVL": (835.5, 835.5, 1670.5, 1670.5, 417.5, 60, 60, 3900, _H100),
    "H100 PCIe": (756, 756, 1513, 1513, 378, 51.2, 51.2, 2039, _HOPPER),
    "A100-SXM4-40GB": (312, 312, 0, 624, 156, 19.5, 19.5, 1555, _A100),
    "A100-SXM4-80GB": (312, 312, 0, 624, 156, 19.5, 19.5, 2039, _A100),
    "A100-PCIE-40GB": (312, 312, 0, 624, 156, 19.5, 19.5, 1555, _A100),
    "A100 80GB PCIe": (312, 312, 0, 624, 156, 19.5, 19.5, 1935, _A100),
    "A30": (165, 165, 0, 330, 82, 10.3, 10.3, 933, _A30),
    "A40": (149.7, 149.7, 0, 299.3, 74.8, 37.4, 0, 696, _A40),
    "A10": (125, 125, 0, 250, 62.5, 31.2, 0, 600, _A10),
    "L40S": (362.05, 362.05, 733, 733, 183, 91.6, 0, 864, _L40S),
    "L40": (181.05, 181.05, 362, 362, 90.5, 90.5, 0, 864, _L40),
    "L4": (121, 121, 242.5, 242.5, 60, 30.3, 0, 300, _L4),
    "Tesla V100-SXM2-16GB": (0, 125, 0, 0, 0, 15.7, 7.8, 900, _V100),
    "Tesla V100-SXM2-32GB": (0, 125, 0, 0, 0, 15.7, 7.8, 900, _V100),
    "Tesla V100-PCIE-16GB": (0, 112, 0, 0, 0, 14, 7, 900, _V100),
    "Tesla V100-PCIE-32GB": (0, 112, 0, 0, 0, 14, 7, 900, _V100),
    "Tesla V100S-PCIE-32GB": (0, 130, 0, 0, 0, 16.4, 8.2, 1134, _V100),
    "Tesla T4": (0, 65, 0, 130, 0, 8.1, 0, 320, _T4),
    # AMD; products of matrices.
    "AMD Instinct MI250X": (191.5, 191.5, 0, 191.5, 0, 47.9, 47.9, 1638, _MI200),
    "AMD Instinct MI300X": (1307, 1307, 2615, 2615, 0, 163.4, 163.4, 5300, _MI300),
    "AMD Instinct MI325X": (1307, 1307, 2615, 2615, 0, 163.4, 163.4, 6000, _MI325),
    # TPU; each TensorCore, of which a device has one, or both of a chip.
    "TPU v4": (137.5, 0, 0, 137.5, 0, 0, 0, 614, _TPU),
    "TPU v5 lite": (197, 0, 0, 393, 0, 0, 0, 819, _TPU),
    "TPU v5e": (197, 0, 0, 393, 0, 0, 0, 819, _TPU),
    "TPU v5": (229.5, 0, 0, 459, 0, 0, 0, 1382, _TPU),
    "TPU v5p": (229.5, 0, 0, 459, 0, 0, 0, 1382, _TPU),
    "TPU v6 lite": (918, 0, 0, 1836, 0, 0, 0, 1638, _TPU),
    "TPU v6e": (918, 0, 0, 1836, 0, 0, 0, 1638, _TPU),
    "TPU7x": (1153.5, 0, 2307, 0, 0, 0, 0, 3690, _TPU),
}

# A part of one has the same name, and fewer compute units.
_CORES = {
    "AMD Instinct MI250X": 110,
    "AMD Instinct MI300X": 304,
    "AMD Instinct MI325X": 304,
}


def shipped(kind: str) -> Peak | None:
    """Return the peak of a device that JAX calls *kind*; `None` if unknown."""
    row = _ROWS.get(kind.removeprefix("NVIDIA "))
    if row is None:
        return None
    *tera, gigabytes, source = row
    flops = {
        name: float(round(number * _TERA))
        for name, number in zip(FORMATS, tera, strict=True)
        if number
    }
    return Peak(flops, gigabytes * _GIGA, source)


class DevicePeak(NamedTuple):
    """The peak of a JAX device, by format, or ``any`` if the program says it."""

    kind: str
    flops: Mapping[str, float]
    bandwidth: float | None = None
    is_tpu: bool = False

    def of(self, format_: str) -> float | None:
        """Return the FLOP/s of operands in *format_*, as `jaxlink.flops` has it."""
        if "any" in self.flops:
            return self.flops["any"]
        if self.is_tpu and format_ in _PASSES:
            whole = self.flops.get("bf16")
            return None if whole is None else whole / _PASSES[format_]
        if format_ in ("float32", "float32/high"):
            return self.flops.get("tf32") or self.flops.get("fp32")
        return self.flops.get(_NAMES.get(format_, ""))


def peak_of(device: Any, *, flops: float = 0.0, bandwidth: float = 0.0) -> DevicePeak:
    """Return the peak of *device*; *flops* and *bandwidth* are the program's, or 0."""
    kind, is_tpu = str(device.device_kind), device.platform == "tpu"
    peak, cores = shipped(kind), getattr(device, "core_count", None)
    if peak is None or (cores is not None and cores != _CORES.get(kind, cores)):
        found = DevicePeak(kind, {}, None, is_tpu)
    else:
        # Both TensorCores of a chip may be one device.
        number = getattr(device, "num_cores", 1) if is_tpu else 1
        flops_of = {name: flops * number for name, flops in peak.flops.items()}
        found = DevicePeak(kind, flops_of, peak.bandwidth * number, is_tpu)
    if flops:
        found = found._replace(flops={"any": flops})
    return found._replace(bandwidth=bandwidth) if bandwidth else found


MODEL, RECOMPUTED = catalog.FLOPS_WORK


class CallCost(NamedTuple):
    """
    What a call of a program takes on this process's devices, of which *part* runs it, 0
    if unknown: FLOPs, and seconds of all of them at their peak if that is known, by
    work.
    """

    flops: Mapping[str, float]
    ideal: Mapping[str, float] | None
    part: float = 1.0

    def is_same(self, other: CallCost) -> bool:
        """Return whether calls of *other* count alike."""
        return (self.flops, self.ideal) == (other.flops, other.ideal)


def cost_of(found: Flops, peak: DevicePeak | None) -> CallCost:
    """Return the cost of a program whose devices, taken together, have this *peak*."""
    flops, ideal = {MODEL: 0.0}, {MODEL: 0.0}
    is_complete = peak is not None
    for (format_, recomputed), number in found.amounts.items():
        work = RECOMPUTED if recomputed else MODEL
        flops[work] = flops.get(work, 0.0) + number
        best = None if peak is None else peak.of(format_)
        if best is None:
            is_complete = False
        else:
            ideal[work] = ideal.get(work, 0.0) + number / best
    return CallCost(flops, ideal if is_complete else None)


def without_peak(found: Flops, peak: DevicePeak) -> str:
    """Return a format of operands for which there is no *peak*."""
    return next((flops for flops, _ in found.amounts if peak.of(flops) is None), "")


def roofline(
    flops: float, seconds: float | None, accessed: float | None, bandwidth: float | None
) -> Roofline | None:
    """Return where a program is, by one device's figures; `None` if one is unknown."""
    if not (flops and seconds and accessed and bandwidth):
        return None
    intensity, ridge = flops / accessed, flops / seconds / bandwidth
    return Roofline(intensity, ridge, "arithmetic" if intensity >= ridge else "memory")


class Executions:
    """Sampled executions of one function. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._steady = SteadyPace()
        self._flops = 0.0
        self._ideal: float | None = 0.0

    def add(self, cost: CallCost, seconds: float) -> None:
        """Add an execution that took *seconds*."""
        flops = cost.flops["model"]
        if not flops:
            return
        with self._lock:
            self._steady.add(seconds, flops)
            self._flops += flops
            if self._ideal is not None and cost.ideal is not None and cost.part:
                self._ideal += cost.ideal["model"] / cost.part
            else:
                self._ideal = None

    @property
    def achieved(self) -> float | None:
        """Model FLOP/s on the devices of this process that run it."""
        pace = self._steady.pace
        return 1 / pace if pace else None

    @property
    def of_peak(self) -> float | None:
        """What fraction of their peak that is; `None` if that is unknown."""
        with self._lock:
            pace = self._steady.pace
            if self._ideal is None or not pace:
                return None
            return self._ideal / (pace * self._flops)
