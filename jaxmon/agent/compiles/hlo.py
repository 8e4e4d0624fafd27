"""What the HLO text of a program says of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple, TypeAlias

from jaxmon.agent.jaxlink import executables
from jaxmon.agent.jaxlink.executables import Exchange
from jaxmon.agent.loaded_programs import copy_bytes


Shapes: TypeAlias = tuple[tuple[int, ...], ...]

# Hex digits of a fingerprint: 64 bits distinguish the programs of a fleet.
_DIGITS = 16


# In the first line of a module; omitted if they are 1.
_PARTITIONS = r", num_partitions=(\d+)"
_REPLICAS = r", replica_count=(\d+)"
# Backends call libraries for products of matrices.
_LIBRARY = r'custom-call\([^\n]*custom_call_target="[^"]*(?:gemm|matmul|dot|conv)'
_DOUBLE = rf"= \(?f64\[\d[^=\n]* (?:dot\(|convolution\(|{_LIBRARY})"
# An array with more than one element: what an optimizer computes from its count of
# steps, a scalar, costs nothing.
_DOUBLES = r"f64\[(?:1,)*(?:[2-9]|1\d)"


class Hlo(NamedTuple):
    """
    Information from a program's HLO text.

    Attributes:
        fingerprint: hex digits; equal for equal programs, whichever host compiled them.
            Ignores large constants, which HLO text omits. `None` if this JAX cannot
            print HLO without source lines.
        instructions: their number in all computations, including fused ones.
        devices: number of devices it runs on, including those of other processes.
        promotes: whether it computes arrays in float64 although no argument is float64.
        double: whether it multiplies matrices of float64, or convolves with them.
        copy: bytes that a copy of the program takes in memory while it is made.
        copies: those of arguments that each call makes.
        shapes: of what a device has of each argument, and of each result, if there are
            several devices.
        exchanges: what a device gets of whole arrays, by all-gathers and the like.
        alike: whether there are several devices, which differ at most in arguments.
    """

    fingerprint: str | None
    instructions: int
    fusions: int
    devices: int = 1
    promotes: bool = False
    double: bool = False
    text: int = 0
    copy: int = 0
    copies: tuple[executables.ArgumentCopy, ...] = ()
    shapes: tuple[Shapes, ...] = ()
    exchanges: tuple[Exchange, ...] = ()
    alike: bool = False


def read_hlo(texts: Iterable[str], *, comparable: bool) -> Hlo:
    """
    Read the modules of an executable, usually one, which are *comparable* if everything
    that differs between hosts is omitted.

    Holds the GIL for about 1 ms per 100 kB of text.
    """
    digest = sha256()
    instructions = fusions = 0
    devices, promotes, double, alike = 1, False, False, False
    length = copy = 0
    copies: list[executables.ArgumentCopy] = []
    shapes: tuple[Shapes, ...] = ()
    exchanges: list[Exchange] = []
    for text in texts:
        length += len(text)
        copy += copy_bytes([text])
        digest.update(text.encode())
        # Each instruction is on its own line, and nothing else is indented.
        instructions += text.count("\n  ")
        fusions += text.count(" fusion(")
        copies += executables.argument_copies(text)
        head = text.partition("\n")[0]
        devices = max(devices, _number(_PARTITIONS, head) * _number(_REPLICAS, head))
        if devices > 1:
            types = head.partition("entry_computation_layout=")[2].split("->")
            shapes = tuple(map(_shapes, types))
            exchanges += executables.exchanges(text)
            alike = executables.is_alike(text)
        # Few programs compute in float64, and the search takes milliseconds.
        if "f64[" in text:
            promotes = promotes or (
                _takes_none(head) and re.search(_DOUBLES, text) is not None
            )
            double = double or re.search(_DOUBLE, text) is not None
    fingerprint = digest.hexdigest()[:_DIGITS] if comparable else None
    return Hlo(
        *(fingerprint, instructions, fusions, devices, promotes, double, length, copy),
        *(tuple(copies), shapes, tuple(exchanges), alike),
    )


def _shapes(types: str) -> Shapes:
    """Return the shapes in *types*, such as ``{(f32[6,256]{1,0}, s32[])``."""
    return tuple(
        tuple(int(length) for length in lengths.split(",") if length)
        for lengths in re.findall(r"\w\[([\d,]*)\]", types)
    )


def _number(pattern: str, head: str) -> int:
    found = re.search(pattern, head)
    return int(found[1]) if found else 1


def _takes_none(head: str) -> bool:
    """Return whether no argument is float64."""
    # Argument and result types are before and after "->".
    arguments = head.partition("entry_computation_layout=")[2]
    return "f64[" not in arguments.partition("->")[0]
