"""
Optimised HLO: a fingerprint comparable across hosts, and statistics.

XLA's own fingerprint of an executable covers source lines, and differs between an
executable that was compiled and the same one loaded from the persistent cache. Hosts
running the same program would look different. So a program is identified by a digest of
its optimised HLO, without the metadata that only names source lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple


# Hex digits of a fingerprint: 64 bits distinguish the programs of a fleet.
_DIGITS = 16

# In the first line of a module; omitted if they are 1.
_PARTITIONS = r", num_partitions=(\d+)"
_REPLICAS = r", replica_count=(\d+)"


class Hlo(NamedTuple):
    """
    Information from a program's HLO text.

    Attributes:
        fingerprint: hex digits; equal for equal programs, whichever host compiled them.
            Ignores large constants, which HLO text omits. `None` if this JAX cannot
            print HLO without source lines.
        instructions: their number in all computations, including fused ones.
        fusions: how many of these are fusions.
        devices: number of devices it runs on, including those of other processes.
        promotes: whether it computes in float64 although no argument is float64.
    """

    fingerprint: str | None
    instructions: int
    fusions: int
    devices: int = 1
    promotes: bool = False


def read(texts: Iterable[str], *, comparable: bool) -> Hlo:
    """
    Read the modules of an executable, usually one.

    Holds the GIL for about 1 ms per 100 kB of text.

    Args:
        texts: HLO text of each module.
        comparable: whether everything that differs between hosts is omitted.
    """
    digest = sha256()
    instructions = fusions = 0
    devices, promotes = 1, False
    for text in texts:
        digest.update(text.encode())
        # Each instruction is on its own line, and nothing else is indented.
        instructions += text.count("\n  ")
        fusions += text.count(" fusion(")
        head = text.partition("\n")[0]
        devices = max(devices, _number(_PARTITIONS, head) * _number(_REPLICAS, head))
        promotes = promotes or _promotes(head, text)
    fingerprint = digest.hexdigest()[:_DIGITS] if comparable else None
    return Hlo(fingerprint, instructions, fusions, devices, promotes)


def _number(pattern: str, head: str) -> int:
    found = re.search(pattern, head)
    return int(found[1]) if found else 1


def _promotes(head: str, text: str) -> bool:
    # Argument and result types are before and after "->".
    arguments = head.partition("entry_computation_layout=")[2]
    return "f64[" in text and "f64[" not in arguments.partition("->")[0]
