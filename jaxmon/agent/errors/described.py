"""Exceptions in a few words, which leave the process: their text is not trusted."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon.agent.inspection import module_of, name_of
from jaxmon.agent.jaxlink import failures
from jaxmon.agent.jaxlink.source_lines import SourceLine
from jaxmon.sources import display_path


LONGEST = 300
# Of an exception: those that it was raised from, or while handling.
_MOST_CAUSES = 4


def is_oom(error: BaseException) -> bool:
    """Return whether *error* is about memory of devices."""
    return failures.is_from_jax(error) and failures.kind_of(error) == "oom"


def described(error: BaseException) -> dict[str, str]:
    """Return class and first line of the message, as far as it may be shown."""
    kind = type(error)
    module = module_of(kind)
    name = name_of(kind)
    message = failures.message_of(error, limit=2 * LONGEST, lines=1)
    if not message and isinstance(error, OSError):
        # Without the file, which may be anything.
        message = str(error.strerror or "")
    return {
        "type": name if module in ("", "builtins") else f"{module}.{name}",
        "message": message[:LONGEST],
    }


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield what *error* was raised from, or while handling, the latest first."""
    seen = {id(error)}
    for _ in range(_MOST_CAUSES):
        one = error.__cause__
        if one is None and not error.__suppress_context__:
            one = error.__context__
        if one is None or id(one) in seen:
            return
        seen.add(id(one))
        yield one
        error = one


def place(line: SourceLine) -> dict[str, str]:
    """Return file and line, and the function that it is in; empty if unknown."""
    if not line.file:
        return {"where": "", "function": ""}
    where = f"{display_path(line.file)}:{line.line}"
    return {"where": where[-LONGEST:], "function": line.function[:LONGEST]}
