"""
docs/json.md: the keys of each JSON document that agents and sidecars serve.

A key is a field of a record in `jaxmon/facts/`, and means what the docstring of that
says.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from jaxmon.facts.events import OomReport, Recompile
from jaxmon.facts.host import JobHost
from jaxmon.facts.process import Snapshot
from jaxmon.facts.record import Fact
from jaxmon.facts.status import FindingSummary, Summary
from jaxmon.settings import described
from jaxmon.symptoms.symptom import Finding
from tools.markdown import page, table
from tools.reference import HEADER


INTRODUCTION = """\
# JSON documents

What agents and sidecars serve as JSON, by record. Keys may be added at any time;
`schema` is raised when a reader would be misled. What is not known is null, or absent.
"""
SERVED = (
    ("`/debug/overview` of an agent, `jaxmon explain --json`", "[Snapshot](#snapshot)"),
    ("`/debug/rank` of an agent", "[Rank](#rank), up to `key_part`"),
    ("`/job` of a sidecar", "[JobHost](#jobhost)"),
    ("`/api/summary` of a sidecar, or of an agent", "[Summary](#summary)"),
    ("report of an out-of-memory error", "[OomReport](#oomreport)"),
    ("`recompiles` in the report of a run", "[Recompile](#recompile)"),
)
DOCUMENTS = (Snapshot, JobHost, Summary, OomReport, Recompile)
# What only commands add, after they have read a document.
ADDED = {"limits", "implausible", "recompiles", "target", "asked", "within", "doubts"}
PLAIN = {
    str: "text",
    bool: "boolean",
    int: "integer",
    float: "number",
    NoneType: "null",
}


def records(of: type[Fact], seen: dict[str, type[Fact]]) -> None:
    """Add *of* and the records in its fields to *seen*, by name."""
    if of.__name__ in seen:
        return
    seen[of.__name__] = of
    for name in of.fields:
        for found in mentioned(get_type_hints(of)[name]):
            if name not in ADDED:
                records(found, seen)


def mentioned(hint: Any) -> Iterator[type[Fact]]:
    """Yield the records in a type."""
    if isinstance(hint, type) and issubclass(hint, Fact):
        yield hint
    for part in get_args(hint):
        yield from mentioned(part)


def shown(hint: Any, *, by_name: bool = False) -> str:
    """Return what a value of a type is in JSON."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(map(shown, parts))
    if origin is tuple and parts:
        return f"{'object' if by_name else 'list'} of {shown(parts[0])}"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"object of {shown(parts[1])}"
    if isinstance(hint, type) and issubclass(hint, Fact):
        return f"[{hint.__name__}](#{hint.__name__.lower()})"
    return PLAIN.get(hint, "any")


def meanings(of: type[Fact]) -> dict[str, str]:
    """Return what the docstrings of a record and its bases say of its fields."""
    found: dict[str, str] = {}
    bases: list[type] = [each for each in of.__mro__ if issubclass(each, Fact)]
    # Sent as it is, with more.
    bases += [Finding] if issubclass(of, FindingSummary) else []
    for each in reversed(bases):
        found |= described(inspect.cleandoc(each.__doc__ or ""), "Attributes")[1]
    return {name: meaning.replace("``", "`") for name, meaning in found.items()}


def section(of: type[Fact]) -> str:
    """Return the table of a record."""
    hints, meaning = get_type_hints(of), meanings(of)
    rows = [
        (
            f"`{name}`",
            shown(hints[name], by_name=name in of.by_name),
            meaning.get(name, "").rstrip(".").replace("`None`", "null"),
        )
        for name in of.fields
        if name not in ADDED
    ]
    head = ("Key", "Value", "Meaning")
    return page(f"## {of.__name__}", *texts(of), table(head, rows))


def texts(of: type[Fact]) -> Iterator[str]:
    """Yield the paragraphs on a record, and those on the records that it extends."""
    bases = [each for each in of.__mro__ if issubclass(each, Fact) and each is not Fact]
    for each in bases:
        text, _, _ = inspect.cleandoc(each.__doc__ or "").partition("Attributes:\n")
        for paragraph in text.strip().split("\n\n"):
            plain = " ".join(paragraph.replace("``", "`").split())
            yield plain.replace("`None`", "null")


def render() -> dict[str, str]:
    """Return the page, by path."""
    seen: dict[str, type[Fact]] = {}
    for document in DOCUMENTS:
        records(document, seen)
    served = table(("Document", "Record"), SERVED)
    text = page(HEADER, INTRODUCTION, served, *map(section, seen.values()))
    return {"docs/json.md": text}
