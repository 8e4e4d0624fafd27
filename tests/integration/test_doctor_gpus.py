"""What `jaxmon doctor` says of NVIDIA GPUs, by the real pynvml on a fake library."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.helpers.processes import run_python


# The host has a driver; which packages there are is said on the command line.
SOURCE = """
import json, pathlib, sys
from jaxmon.preflight.doctor import machine
root, *packages = sys.argv[1:]
found = machine.devices(pathlib.Path(root), packages.__contains__)
print(json.dumps([[one.status, one.text, one.advice] for one in found]))
"""

Check = Callable[..., list[list[str]]]


@pytest.fixture
def check(nvml_library: Path, tmp_path: Path) -> Check:
    """Return a function that checks the devices of a host with an NVIDIA driver."""
    driver = tmp_path / "proc/driver/nvidia/version"
    driver.parent.mkdir(parents=True)
    driver.touch()

    def check(
        packages: Iterable[str], *, libraries: str = "", **env: str
    ) -> list[list[str]]:
        env = {"JAX_PLATFORMS": "", **env}
        env["LD_LIBRARY_PATH"] = f"{nvml_library}:{libraries}"
        arguments = ("-c", SOURCE, str(tmp_path), *packages)
        found: list[list[str]] = json.loads(run_python(*arguments, env=env).ok().out)
        return found

    return check


def test_a_driver_that_fits_is_in_order(check: Check) -> None:
    """Driver and number of GPUs are reported; an older CUDA runs on a newer driver."""
    for plugin in ("jax_cuda12_plugin", "jax_cuda13_plugin"):
        found = check(["pynvml", plugin], FAKE_NVML_GPUS="2")
        assert found == [["ok", "NVIDIA driver 580.65.06, GPUs: 2", ""]]


@pytest.mark.parametrize(
    ("profile", "cuda", "advice"),
    [
        ("a100", "12.4", "install a newer driver, or pip install 'jax[cuda12]'"),
        ("v100", "11.0", "install a newer driver"),
    ],
)
def test_a_driver_too_old_for_the_plugin_fails(check, profile, cuda, advice):
    """JAX would say so only when a program starts."""
    found = check(["pynvml", "jax_cuda13_plugin"], FAKE_NVML_PROFILE=profile)

    text = (
        f"the driver supports CUDA up to {cuda}, but JAX's plugin needs CUDA 13: JAX "
        "cannot use the GPUs"
    )
    assert found[1:] == [["failure", text, advice]]
    both = ["pynvml", "jax_cuda12_plugin", "jax_cuda13_plugin"]
    assert len(check(both, FAKE_NVML_PROFILE="a100")) == 1


def test_another_cuda_on_the_search_path_is_told(check: Check, tmp_path: Path) -> None:
    """LD_LIBRARY_PATH wins over JAX's wheels."""
    (tmp_path / "cuda").mkdir()
    library = tmp_path / "cuda/libcudnn.so.9"
    library.touch()
    libraries = f"{tmp_path}/none::{tmp_path}/cuda"
    packages = ["pynvml", "jax_cuda12_plugin"]

    wheels = check([*packages, "nvidia"], libraries=libraries)
    assert [one[0] for one in wheels] == ["warning", "ok"]
    assert wheels[0][1] == f"LD_LIBRARY_PATH: {library} is loaded instead of JAX's own"
    assert [one[0] for one in check(packages, libraries=libraries)] == ["ok"]


@pytest.mark.parametrize("wanted", ["cpu", "tpu, cpu"])
def test_gpus_that_are_left_out_are_told(check: Check, wanted: str) -> None:
    """JAX_PLATFORMS, set once for a test, keeps programs off the GPUs."""
    found = check(["pynvml", "jax_cuda12_plugin"], JAX_PLATFORMS=wanted)

    told = [text for status, text, _ in found if status == "warning"]
    assert told[-1] == f"JAX_PLATFORMS={wanted}: programs will not use the GPUs"
    asked = check(["pynvml", "jax_cuda12_plugin"], JAX_PLATFORMS="cuda,cpu")
    assert [status for status, *_ in asked] == ["ok"]
