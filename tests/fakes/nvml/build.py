"""Builds the fake NVML once per test run."""

import subprocess
from pathlib import Path

from tests.helpers.processes import require_program


SOURCE = Path(__file__).with_name("fake_nvml.c")
# The name that pynvml asks the dynamic linker for.
LIBRARY = "libnvidia-ml.so.1"


def build(directory: Path, *, old: bool = False) -> Path:
    """
    Compile the library into *directory*, for ``LD_LIBRARY_PATH``, and return that.

    An *old* one lacks functions that drivers did not always have.
    """
    subprocess.run(
        [
            require_program("gcc"),
            "-shared",
            "-fPIC",
            "-Wall",
            "-Wextra",
            "-Werror",
            *(["-DFAKE_NVML_OLD"] if old else []),
            f"-Wl,-soname,{LIBRARY}",
            "-o",
            str(directory / LIBRARY),
            str(SOURCE),
        ],
        check=True,
    )
    return directory
