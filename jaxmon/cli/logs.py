"""The log of the sidecar, in which agents, drivers and servers are quoted."""

from __future__ import annotations

import logging

from jaxmon.report.layout import clean


class LogFormatter(logging.Formatter):
    """
    Formats records of a log: a message is one harmless line, and what else belongs to
    it is indented, so that nothing in it looks like another record.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return *record* as text."""
        first, *rest = super().format(record).split("\n")
        return "\n".join([clean(first), *(f"  {clean(one)}" for one in rest)])

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's
        """Return the message of *record* with the time and the rest."""
        record.message = clean(record.message)
        return super().formatMessage(record)
