"""NCCL's RAS: our collector at the port of a real communicator of one rank."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from jaxmon import catalog
from jaxmon.exposition.families import Family
from jaxmon.host.http.fetch import FetchError
from jaxmon_exporter.collectors import nccl as client
from jaxmon_exporter.collectors.nccl import Nccl
from tools.silicon.findings import Finding, ImpossibleError, Measured, between, same
from tools.silicon.series import collected, label, samples, total


PACKAGES = ("nvidia-nccl-cu13", "nvidia-nccl-cu12")
ADDRESS = "localhost:28028"
SECONDS = 20
MOST = 16 << 20


def measure_ras(place: Path) -> Measured:
    """Create a communicator of one rank, and query RAS as the sidecar does."""
    found = library()
    nccl = ctypes.CDLL(str(found))
    communicator, device, version = ctypes.c_void_p(), ctypes.c_int(0), ctypes.c_int()
    _check(nccl.ncclGetVersion(ctypes.byref(version)), "ncclGetVersion")
    code = nccl.ncclCommInitAll(ctypes.byref(communicator), 1, ctypes.byref(device))
    _check(code, "ncclCommInitAll")
    at = client.place_of(os.environ.get("NCCL_RAS_ADDR", ADDRESS))
    deadline = time.monotonic() + SECONDS
    while (there := client.found(at)) is None:
        if time.monotonic() > deadline:
            msg = f"NCCL {version.value} opens no RAS port for one rank"
            raise ImpossibleError(msg)
        time.sleep(0.2)
    for json in (True, False):
        try:
            body, is_json = client.query(there, seconds=12, max_bytes=MOST, json=json)
        except FetchError as error:
            body, is_json = repr(error).encode(), False
        name = f"ras.{'json' if is_json else 'txt'}"
        (place / name).write_bytes(body)
    collector = Nccl(os.environ.get("NCCL_RAS_ADDR", ADDRESS), chance=lambda *_: 1)
    page: list[Family] = []
    while not page and time.monotonic() < deadline + SECONDS:
        families = collected(collector)
        page = families if samples(families, catalog.NCCL_INFO) else []
        time.sleep(0 if page else 1)
    collector.close()
    nccl.ncclCommDestroy(communicator)
    info = min(samples(page, catalog.NCCL_INFO), default="")
    return {
        "version": label(info, "version"),
        "truth": version.value,
        "gpus": total(page, catalog.NCCL_GPUS),
        "nodes": total(page, catalog.NCCL_NODES),
        "responding": total(page, catalog.NCCL_PROCESSES, state="responding"),
        "faulty": total(page, catalog.NCCL_FAULTY_COMMUNICATORS),
        "communicators": total(page, catalog.NCCL_COMMUNICATORS),
        "inspector": [str(one) for one in found.parent.glob("*inspector*")],
    }


def judge_ras(measured: Measured) -> Iterator[Finding]:
    """Expect the library's version, and a healthy job of one GPU."""
    number = measured["truth"]
    version = f"{number // 10_000}.{number // 100 % 100}.{number % 100}"
    yield same("version", measured["version"].partition("+")[0], version)
    yield same("GPUs", measured["gpus"], 1)
    yield same("nodes", measured["nodes"], 1)
    yield same("processes that respond", measured["responding"], 1)
    yield between("communicators", measured["communicators"], 1, 1)
    yield between("faulty communicators", measured["faulty"], 0, 0)
    shipped = measured["inspector"]
    yield Finding("Inspector in the package", str(bool(shipped)), "", None)


def library() -> Path:
    """
    Return the path of the installed NCCL.

    Raises:
        ImpossibleError: no package of it is installed.
    """
    for package in PACKAGES:
        try:
            listed = files(package) or []
        except PackageNotFoundError:
            continue
        for one in listed:
            if one.name.startswith("libnccl.so"):
                return Path(str(one.locate()))
    msg = f"none of these is installed: {', '.join(PACKAGES)}"
    raise ImpossibleError(msg)


def _check(code: int, what: str) -> None:
    if code:
        msg = f"{what} returned {code}"
        raise ImpossibleError(msg)
