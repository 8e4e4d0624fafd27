"""The files of a report."""

from __future__ import annotations

from typing import NamedTuple

from jaxmon.report.html.page import page
from jaxmon.report.runs.build import Facts, build
from jaxmon.report.runs.read import parse


class Files(NamedTuple):
    """A summary in JSON, and the page that shows it."""

    summary: str
    page: str


def files_of(facts: Facts) -> Files:
    """Return the files of a report of *facts*; takes some ten milliseconds."""
    summary = build(facts)
    return Files(summary, page(parse(summary)))
