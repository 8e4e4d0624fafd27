"""
Content of an agent's debug endpoints as typed data.

Fields have the names used in the JSON, and the code that evaluates and formats reads
nothing else. All text in it is safe to print on a terminal.
"""

from __future__ import annotations

from jaxmon.report.model.cache import Cache, Obstacle, Requests, Signatures
from jaxmon.report.model.events import Difference, Event, Recompile, Warned
from jaxmon.report.model.functions import (
    Checks,
    Determinism,
    Function,
    Keys,
    Numerics,
    Output,
    Phase,
    Program,
    Roofline,
    Uncounted,
    Utilization,
)
from jaxmon.report.model.memory import (
    Allocations,
    Device,
    Leak,
    Line,
    Memory,
    Transfer,
    Transfers,
)
from jaxmon.report.model.mistakes import Errors, Slower, TraceMistake, Tracing
from jaxmon.report.model.snapshot import (
    Compiling,
    Exports,
    Process,
    Snapshot,
    read,
)
from jaxmon.report.model.usual import Series, Usual
from jaxmon.report.model.values import LoggedValue, Quantity


__all__ = [
    "Allocations",
    "Cache",
    "Checks",
    "Compiling",
    "Determinism",
    "Device",
    "Difference",
    "Errors",
    "Event",
    "Exports",
    "Function",
    "Keys",
    "Leak",
    "Line",
    "LoggedValue",
    "Memory",
    "Numerics",
    "Obstacle",
    "Output",
    "Phase",
    "Process",
    "Program",
    "Quantity",
    "Recompile",
    "Requests",
    "Roofline",
    "Series",
    "Signatures",
    "Slower",
    "Snapshot",
    "TraceMistake",
    "Tracing",
    "Transfer",
    "Transfers",
    "Uncounted",
    "Usual",
    "Utilization",
    "Warned",
    "read",
]
