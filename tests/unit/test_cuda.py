"""Who a GPU is, asked of a driver that is a small C library here."""

import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from jaxmon.agent.devices import hardware as cuda
from jaxmon.agent.devices import part as identity
from tests.helpers.processes import require_program


SOURCE = Path(__file__).parents[1] / "fakes" / "cuda" / "fake_cuda.c"


def built(directory: Path, *flags: str) -> str:
    path = directory / cuda.LIBRARY
    flags = ("-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", *flags)
    subprocess.run(
        [require_program("gcc"), *flags, "-o", str(path), str(SOURCE)], check=True
    )
    return str(path)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> str:
    return built(tmp_path_factory.mktemp("cuda"))


MIG = ("MIG-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf", "0000:c1:00.0")


def test_a_gpu_is_named_as_nvml_names_it(driver: str) -> None:
    """As NVML and sysfs spell it; a slice by itself; without a UUID by its address."""
    uuid = "GPU-10111213-1415-1617-1819-1a1b1c1d1e1f"
    assert cuda.identify(0, driver) == (uuid, "0000:c0:00.0")
    assert cuda.identify(1, driver) == MIG
    assert cuda.identify(2, driver) == ("", "0000:c2:00.0")


def test_a_driver_without_mig_has_the_older_call_only(tmp_path: Path) -> None:
    """Drivers before 11.4 report the UUID as well."""
    uuid, _ = cuda.identify(0, built(tmp_path, "-DNO_V2"))
    assert uuid.startswith("GPU-10111213-")


def test_no_device_and_no_driver_are_no_error(driver: str) -> None:
    """A number that CUDA does not know, and a host without CUDA, have no identity."""
    assert cuda.identify(7, driver) == ("", "")
    assert cuda.identify(0, "libdoes-not-exist.so.1") == ("", "")
    assert cuda.identify(0, "libm.so.6") == ("", "")


def device(platform: str, version: str, ordinal: int | None = 1) -> SimpleNamespace:
    client = SimpleNamespace(platform_version=version)
    return SimpleNamespace(platform=platform, client=client, local_hardware_id=ordinal)


def test_only_cuda_devices_are_asked_for(driver, monkeypatch):
    """JAX's number of a device on this host is CUDA's; others have none."""
    monkeypatch.setattr(cuda, "LIBRARY", driver)

    assert identity.hardware(device("gpu", "PJRT C API\ncuda 12090")) == MIG
    assert identity.hardware(device("gpu", "PJRT C API\nrocm 60300")) == ("", "")
    assert identity.hardware(device("cpu", "cuda")) == ("", "")
    assert identity.hardware(device("gpu", "cuda", None)) == ("", "")
