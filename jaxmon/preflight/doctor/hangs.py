"""Whether anything would end a hang of a job of several processes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from jaxmon.preflight.doctor.finding import Check
from jaxmon.preflight.doctor.versions import Version, installed
from jaxmon.screens.timeouts import FLAGS, OF_START, TIMEOUTS, Timeout, has


AREA = "hangs"

# Their number, by those who start them.
_NUMBERS = (
    *("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"),
    "JAX_NUM_PROCESSES",
)
# Set only for jobs of several.
_SIGNS = ("JAX_COORDINATOR_ADDRESS", "JOBSET_NAME", "MEGASCALE_NUM_SLICES")
_GPU_PLUGINS = ("jax-cuda12-plugin", "jax-cuda13-plugin")
_MOST_DIGITS = 7


def check(environ: Mapping[str, str], version: Version = installed) -> Iterator[Check]:
    """
    Yield findings about time limits, of jobs of several processes only.

    Args:
        environ: variables.
        version: returns the version of a package.
    """
    jaxlib = version("jaxlib")
    if jaxlib is None:
        return  # that is reported elsewhere
    flags = _flags(environ.get(FLAGS, ""))
    for one in TIMEOUTS.values():
        if one.flag in flags and not has(one, jaxlib):
            text = f"{FLAGS} has {one.flag}, which jaxlib {jaxlib} may not know"
            advice = (
                "XLA aborts at flags that it does not know: remove it, or install "
                f"jaxlib {_dotted(one.since)} or later"
            )
            yield Check(AREA, "warning", text, advice)
        elif flags.get(one.flag, "").isdecimal() and not one.example.isdecimal():
            text = f"{FLAGS} has {one.flag}={flags[one.flag]}, without a unit"
            advice = f"XLA aborts at such a value: give one such as {one.example}"
            yield Check(AREA, "warning", text, advice)
    if not are_several(environ):
        return
    wanted = TIMEOUTS.get(_platform(environ, version))
    if wanted is not None and has(wanted, jaxlib):
        yield from _limit(wanted, flags)


def are_several(environ: Mapping[str, str]) -> bool:
    """Return whether this process seems to be one of several of a job."""
    numbers = (environ.get(name, "") for name in _NUMBERS)
    return any(_number(text) > 1 for text in numbers) or any(
        environ.get(name) for name in _SIGNS
    )


def _number(text: str) -> int:
    known = text.isascii() and text.isdecimal() and len(text) < _MOST_DIGITS
    return int(text) if known else 0


def _platform(environ: Mapping[str, str], version: Version) -> str:
    """Return the platform that programs will run on, ``""`` if that is unknown."""
    wanted = environ.get("JAX_PLATFORMS", "").partition(",")[0]
    if wanted:
        return "gpu" if wanted in {"cuda", "gpu"} else wanted
    if version("libtpu"):
        return "tpu"
    return "gpu" if any(map(version, _GPU_PLUGINS)) else ""


def _limit(one: Timeout, flags: Mapping[str, str]) -> Iterator[Check]:
    if value := flags.get(one.flag, one.default):
        yield Check(AREA, "ok", f"{one.flag}={value} {one.what}")
        return
    text = "one process that is stuck stops all others of a job, with no time limit"
    if OF_START in flags:
        text += f": {OF_START} applies only while NCCL is set up"
    advice = f"{one.assignment} {one.what}; {one.price}"
    yield Check(AREA, "note", text, advice)


def _flags(text: str) -> dict[str, str]:
    """Return the flags in *text* by name; of a file that it names, none."""
    found = re.finditer(r"(?<!\S)(--\w+)(?:=(\S*))?", text)
    return {one[1]: one[2] or "" for one in found}


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
