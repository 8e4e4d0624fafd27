"""Builds the fake NVML once per process of a test run."""

import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.helpers.processes import require_program


SOURCE = Path(__file__).with_name("fake_nvml.c")
# The name that pynvml asks the dynamic linker for.
LIBRARY = "libnvidia-ml.so.1"


def build(directory: Path, *, old: bool = False) -> Path:
    """
    Put the library into *directory*, for ``LD_LIBRARY_PATH``, and return that.

    An *old* one lacks functions that drivers did not always have.
    """
    (directory / LIBRARY).write_bytes(_compiled(old=old))
    return directory


@cache
def _compiled(*, old: bool) -> bytes:
    with TemporaryDirectory() as directory:
        library = Path(directory, LIBRARY)
        subprocess.run(
            [
                require_program("gcc"),
                *("-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"),
                *(["-DFAKE_NVML_OLD"] if old else []),
                f"-Wl,-soname,{LIBRARY}",
                *("-o", str(library)),
                str(SOURCE),
            ],
            check=True,
        )
        return library.read_bytes()
