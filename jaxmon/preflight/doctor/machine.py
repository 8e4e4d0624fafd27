"""The machine: run directory and port, accelerators and their libraries, hooks."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from queue import Empty, SimpleQueue
from types import ModuleType

from jaxmon.facts.events import Cache
from jaxmon.facts.reader import from_json
from jaxmon.facts.record import NOTHING, Fact
from jaxmon.host import rundir, subprocesses
from jaxmon.host.formats import json_text
from jaxmon.host.http import fetch
from jaxmon.host.http.fetch import FetchError, fetch_all
from jaxmon.host.rundir import RunDirError
from jaxmon.preflight.doctor import Area, Check
from jaxmon.settings import PREFIX


DEVICES = Area("devices")

_MAJORS = (12, 13)
_NVML_SECONDS = 10.0
# Libraries of CUDA that JAX's wheels bring along.
_LIBRARIES = ("libcudart", "libcublas", "libcudnn", "libcusolver", "libnccl")

_GOOGLE, _PROCESSING = "0x1ae0", "0x12"


def devices(
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
        yield DEVICES.ok(text)
    yield from _platforms(environ.get("JAX_PLATFORMS", ""), gpu=gpu, tpu=tpu)


def _platforms(wanted: str, *, gpu: bool, tpu: bool) -> Iterator[Check]:
    names = {name.strip() for name in wanted.lower().split(",")} - {""}
    if not names:
        return
    for name, here, what in (("cuda", gpu, "NVIDIA driver"), ("tpu", tpu, "TPU")):
        if name in names and not here:
            text = f"there is no {what}: JAX will fail to start"
            advice = "run jaxmon doctor where the program will run"
            yield DEVICES.warning(f"JAX_PLATFORMS={wanted}, but {text}", advice)
    for aliases, here, what in (({"cuda", "gpu"}, gpu, "GPUs"), ({"tpu"}, tpu, "TPU")):
        if here and not names & aliases:
            text = f"JAX_PLATFORMS={wanted}: programs will not use the {what}"
            yield DEVICES.warning(text, "unset it to let JAX use what is available")


def _nvidia(
    package: Callable[[str], bool], environ: Mapping[str, str]
) -> Iterator[Check]:
    plugins = [major for major in _MAJORS if package(f"jax_cuda{major}_plugin")]
    if not plugins:
        text = "an NVIDIA driver is loaded, but JAX has no CUDA plugin"
        advice = "pip install 'jax[cuda13]' (or cuda12), or JAX runs on the CPU"
        yield DEVICES.warning(text, advice)
    elif package("nvidia"):
        yield from _libraries(environ.get("LD_LIBRARY_PATH", ""))
    if not package("pynvml"):
        text = "nvidia-ml-py is missing: the sidecar cannot export GPU metrics"
        yield DEVICES.warning(text, "pip install 'jaxmon[nvidia]'")
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
            yield DEVICES.warning(text, advice)
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
            answer.put([DEVICES.warning(text, advice)])

    threading.Thread(target=ask, daemon=True).start()
    try:
        return answer.get(timeout=_NVML_SECONDS)
    except Empty:
        text = f"NVML did not respond within {_NVML_SECONDS:g} s"
        advice = "the driver is hung; check dmesg for Xid errors and reset the GPU"
        return [DEVICES.failure(text, advice)]


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
        return [DEVICES.failure(text, advice)]
    driver = driver.decode() if isinstance(driver, bytes) else driver
    text = f"NVIDIA driver {driver}, GPUs: {count}"
    found = [DEVICES.ok(text) if count else DEVICES.warning(text)]
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
    return DEVICES.failure(text, advice)


def _has_tpu(root: Path) -> bool:
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
        yield DEVICES.ok("TPU and libtpu found")
    else:
        text = "TPU found, but libtpu is missing"
        yield DEVICES.warning(text, "pip install 'jax[tpu]'")
    if not package("grpc"):
        text = "grpcio is missing: the sidecar cannot export TPU metrics"
        yield DEVICES.warning(text, "pip install 'jaxmon[tpu]'")


SOCKETS = Area("sockets")

_TIMEOUT = 3.0
_MAX_BYTES = 64 << 10


def sockets(directory: Path, port: int | None) -> Iterator[Check]:
    """Yield findings about the run *directory* and the agents' *port*."""
    usable = _directory(directory)
    yield usable
    if usable.status == "ok":
        yield from _agents(directory)
    if port:
        yield _port(port)


def _directory(directory: Path) -> Check:
    existed = os.path.lexists(directory)  # also where its parent cannot be entered
    # Under a name that no agent has, and no longer than theirs: a slot that is taken,
    # for however short, is one that the next agent does not get.
    trial = directory / f"d-{os.getpid()}"
    try:
        rundir.prepare(directory)
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as probe:
            probe.bind(str(trial))
    except RunDirError as error:
        return SOCKETS.failure(str(error), "agents will serve TCP only")
    except OSError as error:
        text = f"cannot create sockets in run directory {directory}: {error.strerror}"
        return SOCKETS.failure(text, "set JAXMON_RUN_DIR to a local directory")
    finally:
        with contextlib.suppress(OSError):
            trial.unlink()
        if not existed:
            with contextlib.suppress(OSError):
                directory.rmdir()
    return SOCKETS.ok(f"run directory {directory}")


def _agents(directory: Path) -> Iterator[Check]:
    sockets = rundir.sockets(directory)
    answers = fetch_all(sockets, "/-/healthy", timeout=_TIMEOUT, max_bytes=_MAX_BYTES)
    up, dead = [], []
    for worker, answer in answers.items():
        if not isinstance(answer, FetchError):
            up.append(worker)
        elif answer.reason == fetch.GONE:
            dead.append(worker)
        elif answer.reason in (fetch.BROKEN, fetch.TOO_LARGE):
            text = f"{sockets[worker]} is not an agent: {answer}"
            advice = (
                "find out what owns it, for example with lsof, or use another "
                "JAXMON_RUN_DIR"
            )
            yield SOCKETS.warning(text, advice)
        elif answer.reason != fetch.LEFT:
            text = f"agent {worker} does not respond: {answer}"
            advice = "its process may be stopped, or holding the GIL in native code"
            yield SOCKETS.warning(text, advice)
    if up:
        yield SOCKETS.ok(f"agents running here: {', '.join(up)}")
    if dead:
        workers = "worker" if len(dead) == 1 else "workers"
        text = f"{workers} {', '.join(dead)}: killed, and the socket is left"
        yield SOCKETS.note(f"{text}; the next agent there replaces it")


def _port(port: int) -> Check:
    with contextlib.closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                text = f"port {port} is unusable: {os.strerror(error.errno or 0)}"
                return SOCKETS.warning(text, "set a different JAXMON_PORT")
            text = f"port {port} is in use: the next agent will use the next free one"
            advice = "scrape the sidecar, which discovers agents through their sockets"
            return SOCKETS.note(text, advice)
    return SOCKETS.ok(f"port {port} is free")


HOOKS, CACHE, INTERNALS = Area("hooks"), Area("cache"), Area("internals")

_SECONDS = 120.0
_COMMAND = (sys.executable, "-m", "jaxmon.agent.selftest")
_REPORT = "please report this with these versions"


class _Missing(Fact):
    """Alternative names that JAX lacks, the metrics that they cost, and a hook."""

    names: tuple[str, ...] = ()
    costs: tuple[str, ...] = ()
    hook: str = ""


class _Result(Fact):
    """What `jaxmon.agent.selftest` prints; *python* is why it could not run."""

    python: str = ""
    jax: str = ""
    hooks: Mapping[str, bool] = NOTHING
    miscounted: Mapping[str, tuple[int, ...]] = NOTHING
    internal_errors: Mapping[str, int] = NOTHING
    missing: tuple[_Missing, ...] | None = None
    cache: Cache = Cache()


def hooks(environ: Mapping[str, str]) -> Iterator[Check]:
    """Yield findings on hooks, cache and JAX's names, on the CPU; takes seconds."""
    result = _run(environ)
    if isinstance(result, str):
        advice = "try: python -c 'import jax; print(jax.numpy.ones(3))'"
        yield HOOKS.failure(result, advice)
        return
    if result.python:
        text, _, advice = result.python.partition("; ")
        yield HOOKS.failure(text, advice)
        return
    yield from _hooks(result)
    yield from _internals(result)
    yield from _cache(result.cache)


def _run(environ: Mapping[str, str]) -> _Result | str:
    """Return what the self-test prints, or why it did not run."""
    variables = {
        name: text for name, text in environ.items() if not name.startswith(PREFIX)
    }
    variables["JAX_PLATFORMS"] = "cpu"
    variables.pop("JAX_DISABLE_JIT", None)  # reported elsewhere; nothing would compile
    try:
        done = subprocesses.run(_COMMAND, env=variables, seconds=_SECONDS)
    except TimeoutError:
        return f"importing JAX and calling a function took longer than {_SECONDS:g} s"
    last = (done.err.strip().splitlines() or ["no message"])[-1]
    if done.code != 0:
        return f"JAX is unusable: {last[:300]}"
    try:
        document = json_text.parse(done.out.strip().splitlines()[-1])
    except (ValueError, IndexError):
        document = None
    if not isinstance(document, dict):
        return f"the self-test produced no result: {last[:300]}"
    return from_json(_Result, document)


def _hooks(result: _Result) -> Iterator[Check]:
    missing = sorted(name for name, attached in result.hooks.items() if not attached)
    advice = (
        "its metrics will be missing; install a JAX release that jaxmon was tested with"
    )
    for name in missing:
        yield HOOKS.failure(f"hook {name!r} cannot attach to JAX {result.jax}", advice)
    for what, (counted, expected) in result.miscounted.items():
        text = f"a test program made {expected} {what}, but {counted} were counted"
        yield HOOKS.failure(text, _REPORT)
    for site, count in result.internal_errors.items():
        yield HOOKS.warning(f"jaxmon had {count} internal errors in {site}", _REPORT)
    if result.hooks and not missing and not result.miscounted:
        yield HOOKS.ok(f"all {len(result.hooks)} hooks attach to JAX {result.jax}")


def _internals(result: _Result) -> Iterator[Check]:
    advice = "install a JAX that jaxmon was tested on, or a newer jaxmon"
    for missing in result.missing or ():
        names, costs = " or ".join(missing.names), ", ".join(missing.costs)
        text = f"JAX {result.jax} has no {names}; missing without it: {costs}"
        yield (INTERNALS.failure if missing.hook else INTERNALS.warning)(text, advice)
    if result.missing == ():
        text = f"JAX {result.jax} has every name that jaxmon uses, or a substitute"
        yield INTERNALS.ok(text)


def _cache(cache: Cache) -> Iterator[Check]:
    for obstacle in cache.obstacles:
        # Without a directory the cache is off, which is JAX's default.
        found = CACHE.warning if cache.directory else CACHE.note
        yield found(obstacle.message, obstacle.advice)
    if cache.directory and not cache.obstacles:
        yield CACHE.ok(f"persistent cache in {cache.directory}")
