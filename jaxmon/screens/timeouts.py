"""
Which flag of XLA ends a process that waits too long for others, by platform.

JAX's own timeouts end no hang: `heartbeat_timeout_seconds` is about processes that
are gone, `initialization_timeout` about the start, `shutdown_timeout_seconds` about the
end, and ``--xla_gpu_nccl_termination_timeout_seconds`` about the start of NCCL. XLA
aborts at a flag that it does not know, so a flag is named only if jaxlib has it.
"""

from __future__ import annotations

import re
from typing import NamedTuple


FLAGS = "XLA_FLAGS"
_NUMBERS = r"\d{1,4}(\.\d{1,4}){0,3}"


class Timeout(NamedTuple):
    """
    A timeout.

    Attributes:
        flag: of XLA, without a value.
        example: a value.
        since: the oldest jaxlib that is known to have it.
        what: what it does.
        price: what else it ends.
        default: its value if it is not set; empty if there is no limit then.
    """

    flag: str
    example: str
    since: tuple[int, ...]
    what: str
    price: str
    default: str = ""

    @property
    def assignment(self) -> str:
        """Return how to set it."""
        return f"{FLAGS}={self.flag}={self.example}"


# Looked for in jaxlib 0.4.35, 0.6.2, 0.8.2, 0.9.0 to 0.9.2, 0.10.0, 0.10.2 and 0.12.0,
# whose CPU builds know the flags of all platforms. That of the CPU ended hangs of gloo
# in 0.10.2 and 0.12.0, after as many seconds, and by default after 1800; what that of
# the GPU does is known from XLA's source, gpu_executable.cc.
TIMEOUTS = {
    "gpu": Timeout(
        "--xla_gpu_execution_terminate_timeout",
        "30m",
        (0, 9, 1),
        "aborts a process in which one execution takes longer",
        "choose it longer than any step, and than the first one, which sets up NCCL: "
        "a legitimate pause that is longer ends the job",
    ),
    "cpu": Timeout(
        "--xla_cpu_collective_timeout_seconds",
        "300",
        (0, 8, 2),
        "raises an error in a process that waits longer in a collective of gloo",
        "choose it longer than any pause of a process, such as a checkpoint that one "
        "writes alone: one that is longer ends the job",
        "1800",
    ),
}

OF_START = "--xla_gpu_nccl_termination_timeout_seconds"
"""Looks as if it would end hangs, and does so only while NCCL is set up."""


def _platform_of(name: str) -> str:
    return "gpu" if name in {"cuda", "gpu", "rocm"} else name


def timeout(platform: str, jaxlib: str) -> Timeout | None:
    """Return the timeout of *platform* that this jaxlib has, `None` if it has none."""
    found = TIMEOUTS.get(_platform_of(platform))
    return found if found is not None and has(found, jaxlib) else None


def has(timeout: Timeout, jaxlib: str) -> bool:
    """Return whether this jaxlib knows the flag of *timeout*."""
    return numbers(jaxlib) >= timeout.since


def numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a release: ``0.4.35.dev1`` is (0, 4, 35)."""
    match = re.match(_NUMBERS, version)
    return tuple(map(int, match[0].split(".")))[:3] if match else ()
