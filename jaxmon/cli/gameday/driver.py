"""
A stand-in for NVIDIA's driver library, which breaks on command.

It is a ``libnvidia-ml.so.1`` that reads its orders from files, as the fake in jaxmon's
own tests does; jaxmon does not ship one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from jaxmon.errors import CommandError


LIBRARY = "libnvidia-ml.so.1"
_GPUS = "2"


class Driver:
    """
    The stand-in, as one sidecar sees it.

    Args:
        library: directory that holds `LIBRARY`.
        directory: for its orders; empty.
    """

    def __init__(self, library: Path, directory: Path) -> None:
        self._library = library
        self._control = directory / "driver-orders"
        self._xids = directory / "driver-xids"
        self.obey(())

    @property
    def environ(self) -> Mapping[str, str]:
        """The variables that make a process load and obey it."""
        return {
            "LD_LIBRARY_PATH": str(self._library),
            "FAKE_NVML_GPUS": _GPUS,
            "FAKE_NVML_CONTROL": str(self._control),
            "FAKE_NVML_XIDS": str(self._xids),
        }

    def obey(self, orders: Iterable[str]) -> None:
        """Replace its orders."""
        # Replaced at once: it reads the file at every call.
        fresh = self._control.with_suffix(".new")
        fresh.write_text("".join(f"{one}\n" for one in orders), encoding="utf-8")
        fresh.replace(self._control)

    def report(self, xids: Iterable[str]) -> None:
        """Have it report Xid errors, each a device and a number."""
        with self._xids.open("a", encoding="utf-8") as file:
            file.writelines(f"{one}\n" for one in xids)


def require(library: Path) -> Path:
    """
    Return *library*, a directory, as an absolute path.

    Raises:
        CommandError: it does not hold a driver library.
    """
    if not (library / LIBRARY).is_file():
        msg = (
            f"{library} holds no {LIBRARY}; give the directory of a stand-in for the "
            "driver, built from tests/fakes/nvml in jaxmon's repository"
        )
        raise CommandError(msg)
    return library.resolve()
