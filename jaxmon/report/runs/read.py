"""Reads summaries, which are not trusted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from jaxmon.errors import ConfigFileError, JaxmonError
from jaxmon.facts.process import Snapshot
from jaxmon.facts.reader import from_json, mapping
from jaxmon.files import bounded
from jaxmon.formats import json_text, schema
from jaxmon.report.runs import MOST_BYTES, SCHEMA
from jaxmon.report.runs.model import Run


class RunError(JaxmonError):
    """A file is no summary of a run."""


def parse(text: str | bytes) -> Run:
    """
    Return the run in *text*.

    Raises:
        RunError: it is no summary, or one of a later jaxmon.
    """
    try:
        document = mapping(json_text.parse(text, odd_numbers=True))
    except ValueError as error:
        msg = f"it is {error}"
        raise RunError(msg) from error
    if type(document.get("schema")) is not int or "functions" not in document:
        msg = "it is no summary of a run; write one with `jaxmon report`"
        raise RunError(msg)
    try:
        schema.require(document, SCHEMA, oldest=0)
    except ValueError as error:
        raise RunError(str(error)) from error
    return replace(from_json(Run, document), snapshot=from_json(Snapshot, document))


def read_file(path: Path) -> Run:
    """
    Return the run in the file *path*, or in the one summary of the directory *path*.

    Raises:
        RunError: there is none, there are several, or it is damaged.
    """
    if path.is_dir():
        path = _only(path)
    try:
        return parse(bounded.read(path, most=MOST_BYTES, pipe=True))
    except (ConfigFileError, RunError) as error:
        msg = f"{path}: {error}"
        raise RunError(msg) from error


def _only(directory: Path) -> Path:
    found = sorted((*directory.glob("run-*.json"), *directory.glob("summary.json")))
    if len(found) == 1:
        return found[0]
    if not found:
        msg = f"{directory} has no summary; give a directory with one, or a file"
    else:
        names = ", ".join(one.name for one in found[-3:])
        msg = f"{directory} has {len(found)} summaries; give one of them: {names}"
    raise RunError(msg)
