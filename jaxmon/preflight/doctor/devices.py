"""Accelerators of this host, and whether their libraries can be reached."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from queue import Empty, SimpleQueue
from types import ModuleType

from jaxmon.preflight.doctor import Area, Check


AREA = Area("devices")

_MAJORS = (12, 13)
_NVML_SECONDS = 10.0
# Libraries of CUDA that JAX's wheels bring along.
_LIBRARIES = ("libcudart", "libcublas", "libcudnn", "libcusolver", "libnccl")

_GOOGLE, _PROCESSING = "0x1ae0", "0x12"


def check(
    root: Path = Path("/"),
    package: Callable[[str], bool] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Iterator[Check]:
    """Yield findings about GPUs and TPUs. Initialises no device."""
    package = package or (lambda name: find_spec(name) is not None)
    gpu = (root / "proc/driver/nvidia/version").exists()
    tpu = _has_tpu(root)
    if gpu:
        yield from _nvidia(package, environ)
    if tpu:
        yield from _tpu(package)
    if not gpu and not tpu:
        text = "no NVIDIA driver and no TPU found: programs will run on the CPU"
        yield AREA.ok(text)
    yield from _platforms(environ.get("JAX_PLATFORMS", ""), gpu=gpu, tpu=tpu)


def _platforms(wanted: str, *, gpu: bool, tpu: bool) -> Iterator[Check]:
    """
    Yield whether JAX_PLATFORMS names hardware that is missing, or omits hardware that
    is present.
    """
    names = {name.strip() for name in wanted.lower().split(",")} - {""}
    if not names:
        return
    for name, here, what in (("cuda", gpu, "NVIDIA driver"), ("tpu", tpu, "TPU")):
        if name in names and not here:
            text = f"there is no {what}: JAX will fail to start"
            advice = "run jaxmon doctor where the program will run"
            yield AREA.warning(f"JAX_PLATFORMS={wanted}, but {text}", advice)
    for aliases, here, what in (({"cuda", "gpu"}, gpu, "GPUs"), ({"tpu"}, tpu, "TPU")):
        if here and not names & aliases:
            text = f"JAX_PLATFORMS={wanted}: programs will not use the {what}"
            yield AREA.warning(text, "unset it to let JAX use what is available")


def _nvidia(
    package: Callable[[str], bool], environ: Mapping[str, str]
) -> Iterator[Check]:
    """Yield what is to be said about the GPUs of a host that has an NVIDIA driver."""
    plugins = [major for major in _MAJORS if package(f"jax_cuda{major}_plugin")]
    if not plugins:
        text = "an NVIDIA driver is loaded, but JAX has no CUDA plugin"
        advice = "pip install 'jax[cuda13]' (or cuda12), or JAX runs on the CPU"
        yield AREA.warning(text, advice)
    elif package("nvidia"):
        yield from _libraries(environ.get("LD_LIBRARY_PATH", ""))
    if not package("pynvml"):
        text = "nvidia-ml-py is missing: the sidecar cannot export GPU metrics"
        yield AREA.warning(text, "pip install 'jaxmon[nvidia]'")
        return
    yield from _answers(plugins)


def _libraries(search_path: str) -> Iterator[Check]:
    """Yield where the loader finds another CUDA before that of JAX's wheels."""
    for place in filter(None, search_path.split(":")):
        found = (
            path for name in _LIBRARIES for path in Path(place).glob(f"{name}.so*")
        )
        if (library := min(found, default=None)) is not None:
            text = f"LD_LIBRARY_PATH: {library} is loaded instead of JAX's own"
            advice = (
                "unset it for programs with JAX, unless JAX was installed for the "
                "host's CUDA"
            )
            yield AREA.warning(text, advice)
            return


def _answers(plugins: Sequence[int]) -> list[Check]:
    """Query NVML on a thread, because a dead driver never returns."""
    answer: SimpleQueue[list[Check]] = SimpleQueue()

    def ask() -> None:
        try:
            answer.put(_ask_nvml(plugins))
        except Exception as error:  # noqa: BLE001 - silence would read as a hang
            text = f"querying NVML failed: {type(error).__name__}: {error}"
            advice = "pip install --upgrade nvidia-ml-py"
            answer.put([AREA.warning(text, advice)])

    threading.Thread(target=ask, daemon=True).start()
    try:
        return answer.get(timeout=_NVML_SECONDS)
    except Empty:
        text = f"NVML did not respond within {_NVML_SECONDS:g} s"
        advice = "the driver is hung; check dmesg for Xid errors and reset the GPU"
        return [AREA.failure(text, advice)]


def _ask_nvml(plugins: Sequence[int]) -> list[Check]:
    import pynvml  # noqa: PLC0415 - 70 ms, and often not there

    try:
        pynvml.nvmlInit()
        try:
            count = pynvml.nvmlDeviceGetCount()
            driver = pynvml.nvmlSystemGetDriverVersion()
            cuda = _cuda(pynvml)
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        text = f"NVML is unusable: {error}"
        advice = (
            "in a container, make the devices and libraries available (NVIDIA runtime)"
        )
        return [AREA.failure(text, advice)]
    driver = driver.decode() if isinstance(driver, bytes) else driver
    text = f"NVIDIA driver {driver}, GPUs: {count}"
    found = [AREA.ok(text) if count else AREA.warning(text)]
    if cuda is not None and plugins and cuda[0] < min(plugins):
        found.append(_too_old(cuda, min(plugins)))
    return found


def _cuda(pynvml: ModuleType) -> tuple[int, int] | None:
    """Return the latest CUDA version that the driver supports, `None` if unknown."""
    try:
        version = int(pynvml.nvmlSystemGetCudaDriverVersion())
    except pynvml.NVMLError:
        return None
    return version // 1000, version % 1000 // 10


def _too_old(cuda: tuple[int, int], plugin: int) -> Check:
    text = (
        f"the driver supports CUDA up to {cuda[0]}.{cuda[1]}, but JAX's plugin "
        f"needs CUDA {plugin}: JAX cannot use the GPUs"
    )
    advice = "install a newer driver"
    if cuda[0] in _MAJORS:
        advice += f", or pip install 'jax[cuda{cuda[0]}]'"
    return AREA.failure(text, advice)


def _has_tpu(root: Path) -> bool:
    """Return whether a PCI device is a Google accelerator."""
    for device in (root / "sys/bus/pci/devices").glob("*"):
        try:
            vendor = (device / "vendor").read_text().strip()
            kind = (device / "class").read_text().strip()
        except OSError:
            continue
        if vendor == _GOOGLE and kind.startswith(_PROCESSING):
            return True
    return False


def _tpu(package: Callable[[str], bool]) -> Iterator[Check]:
    if package("libtpu"):
        yield AREA.ok("TPU and libtpu found")
    else:
        text = "TPU found, but libtpu is missing"
        yield AREA.warning(text, "pip install 'jax[tpu]'")
    if not package("grpc"):
        text = "grpcio is missing: the sidecar cannot export TPU metrics"
        yield AREA.warning(text, "pip install 'jaxmon[tpu]'")
