"""
``python -m jaxmon.agent.warm.compiling JOB DESCRIPTOR``: compile functions ahead.

``jaxmon warmup`` runs it, because modules of the program may hang or end their process.
JOB is a file as `jaxmon.preflight.warming` writes it; results are lines of JSON on the
file descriptor. No agent runs.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any

from jaxmon.agent.jaxlink.listeners import CACHE_HIT, CACHE_STORED
from jaxmon.agent.warm.rebuilding import Arguments, abstract, jitted_functions
from jaxmon.facts.signatures import CACHED, COMPILED, FAILED, RecordedSignature, parsed
from jaxmon.host import disclosure
from jaxmon.host.formats import json_text


_LONGEST = 300
_NOT_STORED = (
    "compiled, but JAX did not store it: docs/persistent-cache.md says what prevents it"
)


def run(job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Compile what *job* lists; yield a line before each signature, and its result."""
    main, done = job["main"], {tuple(entry) for entry in job["done"]}
    jax: Any = None
    for number, function in enumerate(parsed(job["document"]).functions):
        left = [
            place
            for place in range(len(function.signatures))
            if (number, place) not in done
        ]
        if not left:
            continue
        yield {"begins": [number, left[0]]}
        try:
            jitted = jitted_functions(function, main)
            jax = jax or _jax()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a module may even exit
            reason = _text(error)
            for place in left:
                yield _result(number, place, FAILED, reason)
            continue
        for place in left:
            yield {"begins": [number, place]}
            arguments = Arguments(jax, abstract, main or "__main__")
            signature = function.signatures[place]
            yield _compile(arguments, signature, jitted, (number, place))


def _compile(
    arguments: Arguments,
    signature: RecordedSignature,
    jitted: list[Any],
    at: tuple[int, int],
) -> dict[str, Any]:
    began, status = perf_counter(), CACHED
    try:
        for candidate in jitted:
            args, kwargs = arguments.of(signature)
            found = _compiled(candidate, args, kwargs)
            if not found:
                # JAX may have it from an equal signature before.
                import_module("jax").clear_caches()
                found = _compiled(candidate, args, kwargs)
            if not found:
                return _result(*at, FAILED, _NOT_STORED)
            if found == COMPILED:
                status = found
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - the program's, while tracing
        return _result(*at, FAILED, _text(error))
    return _result(*at, status, "", perf_counter() - began)


def _compiled(jitted: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Compile for these arguments; return what became of it, "" if it isn't stored."""
    lowered = jitted.lower(*args, **kwargs)
    _events.clear()
    lowered.compile()
    if CACHE_STORED in _events:
        return COMPILED
    return CACHED if CACHE_HIT in _events else ""


_events: list[str] = []


def _jax() -> Any:
    jax = import_module("jax")
    jax.monitoring.register_event_listener(lambda event, **_: _events.append(event))
    return jax


def _result(
    number: int, place: int, status: str, reason: str, seconds: float = 0.0
) -> dict[str, Any]:
    return {
        "at": [number, place],
        "status": status,
        "reason": reason,
        "seconds": seconds,
    }


def _text(error: BaseException) -> str:
    """Return *error* as one line."""
    try:
        reason = " ".join(disclosure.text(str(error)).split())
    except Exception:  # noqa: BLE001 - the program's own class
        reason = ""
    name = type(error).__name__
    text = reason if name == "SignaturesError" else f"{name}: {reason}".rstrip(": ")
    return text[:_LONGEST]


def main(arguments: list[str]) -> None:
    """Do the job in the file named first; results go to the descriptor named next."""
    file, descriptor = arguments
    job = json_text.parse(Path(file).read_bytes())
    with os.fdopen(int(descriptor), "w", encoding="utf-8") as results:
        for line in run(job):
            results.write(json.dumps(line) + "\n")
            results.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
