"""What devices could do, by the names that JAX has for them."""

from types import SimpleNamespace
from typing import Any

import pytest

from jaxmon.agent.flops.roofline import _CORES, _ROWS, FORMATS, peak_of, shipped


def device(kind: str, platform: str = "gpu", **others: Any) -> Any:
    return SimpleNamespace(device_kind=kind, platform=platform, **others)


@pytest.mark.parametrize("kind", _ROWS)
def test_a_row_is_plausible(kind: str) -> None:
    """Narrower formats are at least as fast, and each row names its document."""
    found = shipped(kind)
    assert found is not None
    assert len(found.source.split()) > 3
    assert 1e11 < found.bandwidth < 1e13
    speeds = [found.flops.get(name, 0) for name in ("fp8", "fp16", "tf32", "fp32")]
    speeds = [one for one in speeds if one]
    assert speeds == sorted(speeds, reverse=True)
    assert all(1e12 < one < 1e16 for one in found.flops.values())
    assert set(found.flops) <= set(FORMATS)
    bf16, fp16 = found.flops.get("bf16"), found.flops.get("fp16")
    assert None in (bf16, fp16) or bf16 == fp16


def test_dense_products_count() -> None:
    """Of an H100, 989 TFLOP/s of bfloat16: not twice that, for matrices of zeros."""
    peak = peak_of(device("NVIDIA H100 80GB HBM3", core_count=132))

    assert peak.of("bfloat16") == 989.4e12
    assert peak.of("float32") == peak.of("float32/high") == 494.7e12
    assert peak.of("float32/highest") == 66.9e12
    assert peak.of("float8") == peak.of("int8") == 1978.9e12
    assert peak.of("") is None
    assert peak.of("int32") is None
    assert peak.bandwidth == 3352e9


def test_other_names_are_unknown() -> None:
    """A part of a GPU, a virtual one, another model, half of one: none is guessed."""
    unknown = [
        device("NVIDIA A100-SXM4-40GB MIG 3g.20gb"),
        device("GRID A100-10C"),
        device("NVIDIA GeForce RTX 4090"),
        device("cpu", "cpu"),
        device("AMD Instinct MI300X", core_count=38),
    ]
    for one in unknown:
        assert peak_of(one).of("bfloat16") is None
        assert peak_of(one).bandwidth is None
    assert peak_of(device("AMD Instinct MI300X", core_count=304)).flops
    assert set(_CORES) <= set(_ROWS)


def test_a_gpu_without_tensor_cores_for_a_format() -> None:
    """A V100 has no bfloat16, and multiplies float32 as such."""
    peak = peak_of(device("Tesla V100-SXM2-32GB"))

    assert peak.of("bfloat16") is None
    assert peak.of("float32") == 15.7e12


def test_a_tpu_multiplies_in_bfloat16() -> None:
    """In one, three or six passes; a device may have both TensorCores of a chip."""
    chip = peak_of(device("TPU v5p", "tpu", num_cores=2))

    assert chip.of("bfloat16") == chip.of("float32") == 459e12
    assert chip.of("float32/high") == 153e12
    assert chip.of("float32/highest") == 76.5e12
    assert peak_of(device("TPU v5 lite", "tpu", num_cores=1)).of("int8") == 393e12


def test_tpus_are_as_jax_has_them() -> None:
    """JAX has a table of its own for kernels, to three digits."""
    info = pytest.importorskip("jax._src.pallas.mosaic.tpu_info")
    for kind in (one for one in _ROWS if one.startswith("TPU")):
        version = info.chip_version_from_device_kind(kind)
        theirs = info._get_tpu_info_impl(version, 1).bf16_ops_per_second
        ours = shipped(kind)
        assert ours is not None
        assert ours.flops["bf16"] == pytest.approx(theirs, rel=0.005)


def test_settings_come_first() -> None:
    """What the program says of its devices holds for every format."""
    said = peak_of(device("cpu", "cpu"), flops=2e11, bandwidth=5e10)

    assert said.of("float32") == said.of("int32") == 2e11
    assert said.bandwidth == 5e10
