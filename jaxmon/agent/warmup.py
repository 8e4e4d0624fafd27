"""``jaxmon.warmup`` and ``jaxmon.ready``: no compile after the first request."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from jaxmon import interrupts
from jaxmon.agent.agent import running, runtime_of
from jaxmon.agent.counted import uncounted
from jaxmon.agent.functions import label
from jaxmon.agent.guard import log
from jaxmon.agent.jaxlink.jit import function_of, is_jitted
from jaxmon.agent.warm.compiling import Arguments, require_same, zeros
from jaxmon.agent.warm.part import WarmStarts
from jaxmon.errors import SignaturesError
from jaxmon.facts import signatures as recorded
from jaxmon.facts.signatures import RecordedFunction, RecordedSignature
from jaxmon.host import disclosure


@dataclass(frozen=True, slots=True)
class Warmed:
    """
    Result of a warm-up.

    Args:
        warmed: number of signatures whose next call is a hit.
        failed: for each that failed, the function's name and the reason.
        missing: names of functions given that the signatures do not mention.
    """

    warmed: int
    failed: tuple[tuple[str, str], ...]
    missing: tuple[str, ...]


def warmup(
    functions: Callable[..., Any] | Iterable[Callable[..., Any]],
    signatures: str | Path | Mapping[str, Any],
    *,
    uses: bool = False,
    progress: Callable[[int, int], object] | None = None,
) -> Warmed:
    """
    Call jitted *functions* with zeros, once for each recorded signature, so that the
    next such call is a hit in the jit cache.

    The functions really run: one with side effects, such as a callback, has them. While
    this runs, and before it if the agent was started with ``expect_warmup=True``, the
    agent responds 503 at ``/-/ready``. A signature that fails is logged and reported,
    not raised. Give all functions in one call; it takes as long as their compiles.

        jaxmon.warmup([prefill, decode], "signatures.json")

    Args:
        functions: jitted functions.
        signatures: the file of `jaxmon signatures export`, or its decoded JSON.
        uses: whether to notice which of them calls use afterwards. JAX then looks up
            the first call of each in Python once, which takes it milliseconds.
        progress: called after each signature with the number of those tried, and of
            all.

    Raises:
        SignaturesError: the file is invalid.
        TypeError: something given is not jitted.
    """
    several = [functions] if callable(functions) else list(functions)
    for candidate in several:
        if not is_jitted(candidate):
            msg = f"{candidate!r:.80} is not jitted; give functions from jax.jit"
            raise TypeError(msg)
    part = _part()
    total, todo, missing = _matched(several, _document(signatures))
    failed: list[tuple[str, str]] = []
    caller = sys._getframe(1)  # noqa: SLF001 - who warms up
    watched = map(uncounted, several) if uses else ()
    programs = None if part is None else part.begin(total, caller, watched)
    try:
        arguments = Arguments(import_module("jax"), zeros)
        for done, (function, jitted, signature) in enumerate(todo, 1):
            if programs is not None:
                programs.begin(function.function, signature)
            reason = _tried(arguments, function, jitted, signature)
            if reason:
                failed.append((function.function, reason))
                log.warning("warm-up of %s failed: %s", function.function, reason)
            if part is not None:
                part.advance(failed=bool(reason))
            if progress is not None:
                progress(done, total)
    finally:
        if part is not None:
            part.end()
    return Warmed(total - len(failed), tuple(failed), missing)


def ready() -> None:
    """
    Announce that the process is ready: what it needs is compiled.

    From now on, compiles are counted as `jaxmon_compiles_after_ready_total` and judged,
    and the setting ``after_ready`` says what else happens. ``/-/ready`` responds 200
    unless a warm-up is running, during which compiles do not count. It may be called
    repeatedly, from any thread; without an agent, it does nothing.
    """
    if (part := _part()) is not None:
        part.announce(lambda: import_module("jax").process_count())


def _part() -> WarmStarts | None:
    agent = running()
    runtime = None if agent is None else runtime_of(agent)
    return None if runtime is None else runtime.part(WarmStarts)


_Todo = list[tuple[RecordedFunction, Any, RecordedSignature]]


def _matched(
    several: list[Any], document: recorded.Document
) -> tuple[int, _Todo, tuple[str, ...]]:
    functions = {function.function: function for function in document.functions}
    todo: _Todo = []
    missing = []
    for jitted in several:
        name, _ = label(function_of(uncounted(jitted)))
        function = functions.get(name)
        if function is None:
            missing.append(name)
        else:
            todo += [(function, jitted, signature) for signature in function.signatures]
    return len(todo), todo, tuple(missing)


def _tried(
    arguments: Arguments,
    function: RecordedFunction,
    jitted: Any,
    signature: RecordedSignature,
) -> str:
    """Call *jitted*; return why that failed, if so."""
    try:
        require_same(function, jitted)
        args, kwargs = arguments.of(signature)
        import_module("jax").block_until_ready(jitted(*args, **kwargs))
    except SignaturesError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - cold is better than not at all
        interrupts.pass_on(error, theirs=True)
        return disclosure.error(error)
    return ""


def _document(signatures: str | Path | Mapping[str, Any]) -> recorded.Document:
    if isinstance(signatures, (str, Path)):
        return recorded.read(Path(signatures))
    try:
        return recorded.parsed(dict(signatures))
    except ValueError as error:
        msg = f"these are no signatures: {error}"
        raise SignaturesError(msg) from error
