"""What parts of an agent report to each other, and who listens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxmon.agent.counted import CountedFunction
from jaxmon.agent.functions import Function


class Sample(NamedTuple):
    """
    A call that has just returned; whoever sees it must not keep it.

    Attributes:
        function: the figures of its function.
        jitted: JAX's own jitted object.
        args: the positional arguments, donated ones included.
        kwargs: the keyword arguments.
        outputs: what the call returned.
    """

    function: Function
    jitted: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: Any


class SeenError(NamedTuple):
    """
    An error that was counted; whoever sees it must not keep it.

    Attributes:
        function: which it left.
        kind: one of `catalog.ERROR_KINDS`.
        error: itself.
        message: its first lines, empty where they may not be quoted.
        quoted: whether they may.
        stage: how far the call had come, if known.
        where: ``file:line`` of the user's program, if known.
    """

    function: Function
    kind: str
    error: BaseException
    message: str
    quoted: bool
    stage: str | None
    where: str | None


class Observers:
    """
    Who is told of what, in the order of the parts. Each is called on the thread where
    it happens.

    Attributes:
        made: each jitted object whose calls are counted.
        sample: each sampled call, before its caller has the result.
        error: each error, once.
        executable: each of XLA's executables, just built or loaded, with its function.
        promotion: functions with a program that computes in float64 unasked.
        surfaced: exceptions that left a request, an activity or the source of a loop;
            raises nothing.
    """

    __slots__ = ("error", "executable", "made", "promotion", "sample", "surfaced")

    def __init__(self) -> None:
        self.made: list[Callable[[Function, CountedFunction], None]] = []
        self.sample: list[Callable[[Sample], None]] = []
        self.error: list[Callable[[SeenError], None]] = []
        self.executable: list[Callable[[Function, Any], None]] = []
        self.promotion: list[Callable[[Function], None]] = []
        self.surfaced: list[Callable[[BaseException], None]] = []
