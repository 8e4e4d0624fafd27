"""Budgets: limits on what a block may cost, and the agent of tests that observes it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import asdict, dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from jaxmon import interrupts
from jaxmon.agent import Agent
from jaxmon.agent.agent import instrument, running, uninstrument
from jaxmon.agent.events import LoggedEvent
from jaxmon.agent.functions import OTHER, label
from jaxmon.agent.ledger import UNSEEN, Cost, FunctionCost, Growth, Ledger
from jaxmon.errors import BudgetExceeded, JaxmonError, SettingsError
from jaxmon.indicators.decorate import decorated
from jaxmon.settings import Settings
from jaxmon.threads import RLock


if TYPE_CHECKING:
    from jaxmon.options import Options


# It serves no endpoint and polls nothing. Each setting is given, so that the
# environment of the tests has no say.
SILENT = cast(
    "Options",
    asdict(Settings())
    | {"port": None, "socket": False, "calls": False, "max_functions": 10_000}
    | {"memory_interval": 0, "memory_lines_interval": 0, "time_interval": 0}
    | {"programs": False, "signatures": False, "sample_rate": 0, "history": False}
    | {"nonfinite": False, "traces": False, "otlp": False},
)


class BudgetObserver:
    """Provides the running agent, or a private one until the last budget ends."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._private: Agent | None = None
        self._users = 0

    def take(self) -> Agent:
        """Return a running agent; return it with `give_back`."""
        with self._lock:
            agent = running()
            if agent is None:
                agent = self._private = instrument(**SILENT)
                self._users = 0
            if agent is self._private:
                self._users += 1
            return agent

    def give_back(self, agent: Agent) -> None:
        """Stop *agent* if it is ours and not in use elsewhere."""
        with self._lock:
            if agent is not self._private:
                return
            self._users -= 1
            if self._users:
                return
            self._private = None
            if running() is agent:
                uninstrument()


OBSERVER = BudgetObserver()


_T = TypeVar("_T")

_MOST = 10


def details(cost: Cost) -> str:
    """Return lines that name the causes of each value in *cost*."""
    sections = (
        _recompiled(cost),
        _compiled(cost.functions),
        _transferred(cost),
        _grown(cost.memory, cost.holders),
    )
    return "\n".join(line for section in sections for line in section) or "nothing"


def _recompiled(cost: Cost) -> Iterator[str]:
    functions = [function for function in cost.functions if function.recompiles]
    if functions:
        yield "recompiles:"
        for function in _some(functions):
            yield from _recompiles(function, cost.recompiles)
        yield from _rest(functions, "functions")


def _compiled(functions: Sequence[FunctionCost]) -> Iterator[str]:
    if functions:
        yield "compiles:"
        for function in _some(functions):
            yield f"  {function.name}: {function.compiles} in {function.seconds:.3f} s"
        yield from _rest(functions, "functions")


def _transferred(cost: Cost) -> Iterator[str]:
    if cost.transfers and any(cost.transfers.values()):
        yield "transfers:"
        for direction, count in cost.transfers.items():
            if count:
                yield f"  {_plain(direction)}: {count}"
        for (file, number, direction, how), count in _some(cost.lines.items()):
            yield f"  {file}:{number}: {count} {_plain(direction)}, {how}"
        yield from _rest(cost.lines, "lines")


def _grown(memory: Growth | None, holders: Mapping[str, int]) -> Iterator[str]:
    if memory is not None and memory.bytes:
        yield f"live arrays: {memory.bytes:+,} bytes"
        for kind, count in _some(memory.arrays.items()):
            yield f"  {kind}: {count:+} array{'' if abs(count) == 1 else 's'}"
        yield from _rest(memory.arrays, "types")
        for line, size in _some(holders.items()):
            yield f"  {size:+,} bytes at {line}"
        yield from _rest(holders, "lines")


def _recompiles(function: FunctionCost, events: Iterable[LoggedEvent]) -> Iterator[str]:
    causes = dict(function.causes)
    unseen = causes.pop(UNSEEN, 0)
    if causes:
        counts = ", ".join(f"{_plain(cause)} {n}" for cause, n in causes.items())
        yield f"  {function.name}: {counts}"
    if unseen:
        yield (
            f"  {function.name}: was compiled before jaxmon started, so the cause of "
            "its first recompile is unknown; call jaxmon.instrument() earlier to "
            "see it"
        )
    related = [event for event in events if event.function == function.name]
    for event in _some(related):
        texts = [
            difference["text"] for difference in event.details.get("differences", ())
        ]
        for text in texts or [event.message]:
            yield f"    {text}"
    yield from _rest(related, "recompiles", indent=4)


def _some(items: Iterable[_T]) -> list[_T]:
    return list(items)[:_MOST]


def _rest(items: Sized, what: str, *, indent: int = 2) -> Iterator[str]:
    if len(items) > _MOST:
        yield f"{' ' * indent}... and {len(items) - _MOST} more {what}"


def _plain(name: str) -> str:
    return name.replace("_", " ")


F = TypeVar("F", bound=Callable[..., Any])

FIGURES = ("compiles", "recompiles", "transfers", "live_bytes_growth")


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowances:
    """Maximum of each; `None` means no limit. See `jaxmon.budget`."""

    compiles: int | None = None
    recompiles: int | None = None
    transfers: int | None = None
    live_bytes_growth: int | None = None
    function: Callable[..., Any] | str | None = None
    internal: bool = False

    def __post_init__(self) -> None:
        for name in FIGURES:
            value: object = getattr(self, name)
            if value is None or (type(value) is int and value >= 0):
                continue
            msg = (
                f"{name}={value!r} is not a valid limit; give a whole number of at "
                "least 0, or None for no limit"
            )
            raise SettingsError(msg)
        internal: object = self.internal
        if not isinstance(internal, bool):
            msg = f"internal={internal!r} is invalid; give True or False"
            raise SettingsError(msg)
        named = isinstance(self.function, str) and self.function
        if not (self.function is None or named or callable(self.function)):
            msg = (
                f"function={self.function!r} is not a function; give one, or its "
                "name: 'train_step' or 'project.train.train_step'"
            )
            raise SettingsError(msg)


@dataclass(slots=True)
class BlockCost:
    """
    The cost of a block, available after it ends. `str()` gives the details.

    Attributes:
        compiles: programs compiled, or loaded from the persistent cache.
        recompiles: calls that recompiled a function; without a limit, only those whose
            earlier compile was observed.
        seconds: time to trace, lower, compile and load these programs.
        transfers: transfers between host and device, `None` without a limit.
        live_bytes_growth: growth of live array bytes, `None` without a limit.
    """

    compiles: int = 0
    recompiles: int = 0
    seconds: float = 0.0
    transfers: int | None = None
    live_bytes_growth: int | None = None
    _details: str = "the result is not available before the block ends"

    def __str__(self) -> str:
        return self._details

    def _take(self, cost: Cost) -> None:
        self.compiles = sum(function.compiles for function in cost.functions)
        self.recompiles = sum(function.recompiles for function in cost.functions)
        self.seconds = sum(function.seconds for function in cost.functions)
        if cost.transfers is not None:
            self.transfers = sum(cost.transfers.values())
        if cost.memory is not None:
            self.live_bytes_growth = cost.memory.bytes
        self._details = details(cost)


class _BudgetBlock:
    """One block under *limits*, until `close`."""

    def __init__(self, limits: Allowances) -> None:
        self.spent = BlockCost()
        self._limits = limits
        self._agent = OBSERVER.take()
        try:
            self._ledger = Ledger(
                self._agent,
                unseen=limits.recompiles is not None,
                transfers=limits.transfers is not None,
                memory=limits.live_bytes_growth is not None,
            )
        except BaseException:
            OBSERVER.give_back(self._agent)
            raise

    def close(self) -> None:
        """Count for the last time."""
        try:
            self.spent._take(_chosen(self._ledger.cost(), self._limits))  # noqa: SLF001
        finally:
            OBSERVER.give_back(self._agent)

    def check(self) -> None:
        """Compare what was spent with the limits."""
        __tracebackhide__ = True
        exceeded = {
            name: (spent, limit)
            for name in FIGURES
            if (limit := getattr(self._limits, name)) is not None
            and (spent := getattr(self.spent, name)) > limit
        }
        if exceeded:
            counts = ", ".join(
                f"{_plain(name)}: {spent:,} (allowed: {limit:,})"
                for name, (spent, limit) in exceeded.items()
            )
            msg = f"{counts}\n{self.spent}"
            raise BudgetExceeded(msg)


class Budget:
    """What `budget` returns, for ``with`` or a decorator; may be entered repeatedly."""

    def __init__(self, limits: Allowances) -> None:
        self._limits = limits
        self._lock = RLock()
        self._blocks: list[tuple[object, _BudgetBlock]] = []

    def __enter__(self) -> BlockCost:
        block = _BudgetBlock(self._limits)
        with self._lock:
            self._blocks.append((_owner(), block))
        return block.spent

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> Literal[False]:
        __tracebackhide__ = True
        block = self._pop()
        if error is None:
            block.close()
            block.check()
        else:
            # What left the block is the news, whatever it cost.
            try:
                block.close()
            except Exception as failed:  # noqa: BLE001 - see above
                interrupts.pass_on(failed)
        return False

    def _pop(self) -> _BudgetBlock:
        """Return the innermost block of this thread or task, else the latest."""
        owner = _owner()
        with self._lock:
            places = [
                n for n, (opened_by, _) in enumerate(self._blocks) if opened_by == owner
            ]
            _, block = self._blocks.pop(places[-1] if places else -1)
        return block

    def __call__(self, function: F) -> F:
        """Return *function* with the budget around each call."""
        return decorated(function, lambda: Budget(self._limits))


def budget(  # noqa: PLR0913 - each is optional, and named by the caller
    *,
    compiles: int | None = None,
    recompiles: int | None = None,
    transfers: int | None = None,
    live_bytes_growth: int | None = None,
    function: Callable[..., Any] | str | None = None,
    internal: bool = False,
) -> Budget:
    """
    Limit the cost of a ``with`` block, or of each call of a decorated function.

    Uses the running agent, else starts a private one for the block. All threads of the
    process count; work that JAX finishes after the block does not.

    Args:
        compiles: maximum number of programs compiled or loaded from the persistent
            cache, by a call or ``lower().compile()``. Failed compiles do not count.
        recompiles: maximum number of calls that recompile a function compiled before,
            in the block or earlier.
        transfers: maximum number of transfers between host and device, in either
            direction.
        live_bytes_growth: maximum growth of live array bytes over the block, after
            garbage collection.
        function: count compiles and recompiles of this function only; the function, or
            its name with or without the module.
        internal: count JAX's own functions as well, such as eager ``jnp`` operations.

    Example:
        >>> import jax, jaxmon
        >>> double = jax.jit(lambda x: x * 2)
        >>> with jaxmon.budget(compiles=1, recompiles=0) as spent:
        ...     for _ in range(3):
        ...         y = double(1.0)
        >>> spent.compiles
        1

    Raises:
        BudgetExceeded: at the end of the block, unless it raised.
        SettingsError: a limit is invalid.
        JaxmonError: this JAX, or the running agent, cannot count what is limited.
    """
    return Budget(
        Allowances(
            compiles=compiles,
            recompiles=recompiles,
            transfers=transfers,
            live_bytes_growth=live_bytes_growth,
            function=function,
            internal=internal,
        )
    )


def _owner() -> object:
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no event loop runs in this thread
        task = None
    return threading.get_ident(), id(task)


def _chosen(cost: Cost, limits: Allowances) -> Cost:
    if not limits.internal and any(
        function.name == OTHER for function in cost.functions
    ):
        msg = (
            "jaxmon cannot identify all compiled functions: those beyond "
            f"max_functions are counted as {OTHER!r}; increase max_functions, or "
            "let the budget start its own agent"
        )
        raise JaxmonError(msg)
    wanted = limits.function
    name = wanted if wanted is None or isinstance(wanted, str) else label(wanted)[0]
    functions = tuple(
        function
        for function in cost.functions
        if (
            name in (function.name, function.name.rpartition(".")[2])
            or function.name.endswith(f".{name}")
            if name is not None
            else limits.internal or not function.internal
        )
    )
    names = {function.name for function in functions}
    events = tuple(event for event in cost.recompiles if event.function in names)
    return replace(cost, functions=functions, recompiles=events)
