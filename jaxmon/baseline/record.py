"""A baseline file: measures by function, with the versions that produced them."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxmon.baseline import times
from jaxmon.baseline.figures import FIGURES
from jaxmon.baseline.times import Run
from jaxmon.errors import BaselineError, ConfigFileError
from jaxmon.files import bounded as bounded_file
from jaxmon.files import whole as whole_file
from jaxmon.files.bounded import kind
from jaxmon.formats import json_text, schema
from jaxmon.formats.json_text import require_list, require_object


SCHEMA = 1

VERSIONS = ("jax", "jaxlib", "python", "platform", "device")
"""
Names of the versions that identify a record; ``device`` is the kind of the first one.
"""

MOST_BYTES = 64 << 20
"""Maximum size of a record; no program has so many functions."""
_DIGITS = 4

# Programs have these; where processes compile the same function, the largest counts.
_SUMMED = ("compiles", "recompiles", "compile_seconds")

MEASURED = "compile_seconds"
"""The one of these measures that differs from run to run."""

_LIST = r"\[[^][{}]*\]"


@dataclass(frozen=True, slots=True)
class Record:
    """
    Args:
        versions: by name: those of `VERSIONS`, the machine, and flags.
        functions: measures by function name, without JAX's own functions. Measures that
            JAX does not report are absent.
        runs: how long its programs took, run by run.
    """

    versions: Mapping[str, str]
    functions: Mapping[str, Mapping[str, float]]
    runs: tuple[Run, ...] = ()

    def __str__(self) -> str:
        document = {
            "schema": SCHEMA,
            "versions": dict(self.versions),
            "functions": {
                name: {key: figures[key] for key in FIGURES if key in figures}
                for name, figures in sorted(self.functions.items())
            },
            "runs": [run.as_json() for run in self.runs],
        }
        text = json.dumps(document, indent=2, ensure_ascii=False)
        # Each list of numbers on a line.
        return re.sub(_LIST, lambda found: " ".join(found[0].split()), text) + "\n"


def from_processes(documents: Iterable[Mapping[str, Any]]) -> Record:
    """
    Combine the files written by each agent into the record of a run.

    Counts and seconds of several processes are added up; of program sizes, the largest
    is kept.
    """
    versions: dict[str, str] = {}
    functions: dict[str, dict[str, float]] = {}
    runs = []
    for document in documents:
        if "times" in document:
            runs.append(times.checked(document["times"]))
        versions = {**document["versions"], **versions}
        for name, figures in document["functions"].items():
            known = functions.setdefault(name, {})
            for key, value in figures.items():
                known[key] = (
                    round(known.get(key, 0) + value, _DIGITS)
                    if key in _SUMMED
                    else max(known.get(key, 0), value)
                )
    run = times.of_processes(runs)
    return Record(versions, functions, () if run is None else (run,))


def from_runs(records: Sequence[Record]) -> Record:
    """
    Combine the *records* of several runs of one command.

    What is counted is that of the first run; of measured seconds, the least is kept:
    other processes only add to them.
    """
    first = records[0]
    functions = {name: dict(figures) for name, figures in first.functions.items()}
    for record in records:
        for name, figures in functions.items():
            seconds = record.functions.get(name, {}).get(MEASURED)
            if seconds is not None and seconds < figures.get(MEASURED, seconds):
                figures[MEASURED] = seconds
    runs = tuple(run for record in records for run in record.runs)
    return Record(first.versions, functions, runs)


def write(record: Record, path: Path) -> None:
    """
    Write *record* to *path*, whole or not at all.

    Raises:
        BaselineError: it cannot be written there.
    """
    try:
        # Of a lone surrogate that is the escape that JSON has for it.
        whole_file.write(path, str(record).encode("utf-8", "backslashreplace"))
    except OSError as error:
        msg = f"cannot write {path}: {error.strerror or error}"
        raise BaselineError(msg) from error


def check_writable(path: Path) -> None:
    """
    Check that *path* is writable.

    Raises:
        BaselineError: it is not.
    """
    reason = None
    if path.exists() and not path.is_file():
        reason = f"it is {kind(path.stat().st_mode)}"
    elif not path.parent.is_dir():
        reason = "its directory does not exist"
    elif not os.access(path.parent, os.W_OK | os.X_OK):
        reason = "its directory cannot be written to"
    if reason is not None:
        msg = f"cannot write {path}: {reason}"
        raise BaselineError(msg)


def read(path: Path) -> Record:
    """
    Return the record in the file *path*.

    Raises:
        BaselineError: it does not exist, is damaged, or was written by a later jaxmon.
    """
    try:
        data = bounded_file.read(path, most=MOST_BYTES, pipe=True)
    except ConfigFileError as error:
        msg = f"{path}: {error}"
        raise BaselineError(msg) from error
    try:
        return _record(json_text.parse(data))
    except (ValueError, OverflowError) as error:
        msg = (
            f"{path} is not a baseline: {error}; create one with `jaxmon baseline "
            "record`"
        )
        raise BaselineError(msg) from error


def _record(document: Any) -> Record:
    """
    Return *document* as a record.

    Raises:
        ValueError: it is none.
    """
    found = require_object("the file", document)
    schema.require(found, SCHEMA)
    return checked(found)


def checked(document: Any) -> Record:
    """
    Return the record in *document*, whatever its schema.

    Raises:
        ValueError: there is none.
    """
    found = require_object("the file", document)
    versions = require_object("versions", found.get("versions"))
    for name, value in versions.items():
        if not isinstance(value, str):
            msg = f"versions.{name} is {value!r:.40}, not a string"
            raise ValueError(msg)  # noqa: TRY004 - the file is wrong, not the program
    functions = {
        name: _figures(name, require_object(name, figures))
        for name, figures in require_object("functions", found.get("functions")).items()
    }
    runs = require_list("runs", found.get("runs", []))
    return Record(versions, functions, tuple(map(times.checked, runs)))


def _figures(function: str, found: Mapping[str, Any]) -> dict[str, float]:
    """Return the known measures; a later jaxmon may have more."""
    for name, value in found.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or value < 0:
            msg = f"{function}: {name} is {value!r:.40}, not a number from 0"
            raise ValueError(msg)
    return {name: found[name] for name in FIGURES if name in found}
