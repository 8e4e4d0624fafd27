"""Runbooks: one page for each alert, written by people, shipped with the package."""

from __future__ import annotations

from pathlib import Path


HEADINGS = ("Meaning", "Impact", "Diagnosis", "Mitigation")

DIRECTORY = Path(__file__).resolve().parent.parent / "runbooks"
"""A link to the directory in a source tree, the files themselves in a wheel."""


def names() -> list[str]:
    """Return the names of all runbooks, which are those of the alerts."""
    return sorted(path.stem for path in DIRECTORY.glob("*.md"))


def read(name: str) -> str:
    """Return the text of the runbook *name*, one of `names`."""
    return (DIRECTORY / f"{name}.md").read_text(encoding="utf-8")


def summary(name: str) -> str:
    """Return the first sentence of what the alert *name* means."""
    _, _, meaning = read(name).partition("## Meaning")
    paragraph = " ".join(meaning.strip().partition("\n\n")[0].split())
    sentence, dot, _ = paragraph.partition(". ")
    return f"{sentence}." if dot else paragraph
