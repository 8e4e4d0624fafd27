"""What a process is called by people, out of its command line."""

from __future__ import annotations

from collections.abc import Sequence


# Options of Python that are followed by a value.
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")


def without_interpreter(program: str) -> str:
    """Return the command line *program* from its script or module on."""
    words = program.split(" ")
    return " ".join(words[_start(words) :]) or program


def names(program: str) -> tuple[str, ...]:
    """Return what a program is called: a module, or a script without directory."""
    words = program.split(" ")
    start = _start(words)
    first = words[start] if start < len(words) else ""
    if first == "-m":
        return tuple(words[start + 1 : start + 2])
    if not first or first.startswith("-"):
        return ()
    base = first.rstrip("/").rpartition("/")[2]
    return tuple(dict.fromkeys((first, base, base.removesuffix(".py"))))


def label(program: str) -> str:
    """Return the command line *program* without interpreter and directory."""
    rest = without_interpreter(program)
    if rest.startswith("-m "):
        return rest[3:]
    first, gap, arguments = rest.partition(" ")
    return (first.rstrip("/").rpartition("/")[2] or first) + gap + arguments


def begins(program: str, text: str) -> bool:
    """Return whether *text* begins the command line *program*, its script or module."""
    rest = without_interpreter(program)
    whole = (program, rest, rest.removeprefix("-m "), *names(program))
    return any(spelling.startswith(text) for spelling in whole)


def _start(words: Sequence[str]) -> int:
    place = 1
    while place < len(words) and words[place].startswith("-"):
        if words[place] in ("-m", "-c", "-"):
            break
        place += 2 if words[place] in _WITH_VALUE else 1
    return place
