"""
How settings of agents and options of the sidecar are declared, and how settings are
read from the environment and checked.

A declaration is the metadata of a dataclass's field; its annotation is the type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, field
from typing import Any

from jaxmon.errors import SettingsError


PREFIX = "JAXMON_"

DIRECTORY = "str | None"
"""The annotation of directories, and of nothing else."""

_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")
_NONE = "none"

# Types accepted for each annotation, and their description.
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "bool": ((bool,), "True or False"),
    "bool | None": ((bool,), "True, False or None"),
    "int": ((int,), ""),
    "int | None": ((int,), ""),
    "float": ((int, float), ""),
    "str": ((str,), ""),
    DIRECTORY: ((str,), "a directory, or None"),
}


class Declared:
    """
    What a declaration says besides name, type and default: its meaning, what to *give*
    if type and *within* do not say it; 0 is valid as well if *off*; lists are of words
    *among* these; *flag*, *variable* and *metavar* if they cannot be derived; *check*
    returns the validated value, or raises `ValueError`.
    """

    def __init__(  # noqa: PLR0913 - each is a word of a declaration
        self,
        meaning: str,
        give: str,
        within: tuple[float, float] | None,
        *,
        off: bool,
        among: tuple[str, ...],
        choices: tuple[str, ...],
        flag: str,
        variable: str,
        metavar: str | None,
        check: Callable[[Any], Any] | None,
    ) -> None:
        self.meaning, self.give, self.within, self.off = meaning, give, within, off
        self.among, self.choices = among, choices
        self.flag, self.variable, self.metavar = flag, variable, metavar
        self.check = check


def declared(setting: Field[Any]) -> Declared:
    """Return what is declared of a field."""
    found: Declared = setting.metadata["declared"]
    return found


def setting(  # noqa: PLR0913 - each is a word of a declaration
    meaning: str,
    *,
    default: Any = MISSING,
    give: str = "",
    within: tuple[float, float] | None = None,
    off: bool = False,
    among: tuple[str, ...] = (),
    choices: tuple[str, ...] = (),
    flag: str = "",
    variable: str = "",
    metavar: str | None = None,
    check: Callable[[Any], Any] | None = None,
) -> Any:
    """Return a field with metadata; see `Declared`."""
    about = Declared(
        meaning,
        give,
        within,
        off=off,
        among=among,
        choices=choices,
        flag=flag,
        variable=variable,
        metavar=metavar,
        check=check,
    )
    return field(default=default, metadata={"declared": about})


def words(text: str) -> list[str]:
    """Return the words of the list *text*, in lower case."""
    return [word for part in text.split(",") if (word := part.strip().lower())]


def wanted(setting: Field[Any]) -> str:
    """Return a description of valid values for *setting*."""
    declaration = declared(setting)
    if text := declaration.give or _KINDS[str(setting.type)][1]:
        return text
    low, high = declaration.within or ("", "")
    return f"{low} to {high}"


def parse(name: str, kind: str, text: str) -> object:
    """Return *text* as a value of the field's annotation *kind*."""
    variable, word = PREFIX + name.upper(), text.strip().lower()
    if kind.endswith("| None") and word == _NONE:
        return None
    if kind.startswith("bool"):
        if word in _TRUE:
            return True
        if word in _FALSE:
            return False
        allowed = ", ".join((*_TRUE, *_FALSE))
        msg = f"{variable}={text!r} is not a boolean; use one of {allowed}"
        raise SettingsError(msg)
    number = {"int": int, "int | None": int, "float": float}.get(kind)
    if number is None:
        return text
    try:
        # Python takes the digits of any script.
        return number(word if word.isascii() else "")
    except ValueError:
        wanted = "a whole number" if number is int else "a number"
        msg = f"{variable}={text!r} is not {wanted}; give one or unset it"
        raise SettingsError(msg) from None


def check(setting: Field[Any], value: object) -> None:
    """Raise a `SettingsError` that says what is valid, if *value* is not."""
    kind, declaration = str(setting.type), declared(setting)
    if value is None and kind.endswith("| None"):
        return
    # A bool is an int to Python, not to a user. A name appears in logs and errors.
    if (
        not isinstance(value, _KINDS[kind][0])
        or (isinstance(value, bool) and not kind.startswith("bool"))
        or (kind == "str" and not str(value).isprintable())
        or (declaration.among and not set(words(str(value))) <= set(declaration.among))
    ):
        msg = f"{setting.name}={value!r} is invalid; give {wanted(setting)}"
        raise SettingsError(msg)
    if declaration.within is None or (declaration.off and value == 0):
        return
    low, high = declaration.within
    if not low <= value <= high:  # type: ignore[operator]  # a number, as seen above
        msg = f"{setting.name}={value!r} is out of range; give {low} to {high}"
        raise SettingsError(msg)
