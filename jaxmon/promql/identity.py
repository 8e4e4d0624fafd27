"""
What identifies services and processes at a site.

Queries say ``job`` for a service and ``instance`` for what is scraped. Where several
clusters share a Prometheus, or namespaces a cluster, that is not enough: there, more
labels must be kept in every aggregation and compared in every match.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


_LABELS = re.compile(r"\b(by|on) \(([^()]*)\)")
_JOB_TEXT = "{{ $labels.job }}"
_INSTANCE_TEXT = "{{ $labels.instance }}"


@dataclass(frozen=True, slots=True)
class Identity:
    """
    Labels besides ours.

    Args:
        service: identify a service, together with ``job``.
        process: of a process, beside ``instance``.
    """

    service: tuple[str, ...] = ()
    process: tuple[str, ...] = ()

    def query(self, text: str) -> str:
        """Return a query that keeps the labels wherever it keeps ours."""
        return _LABELS.sub(
            lambda found: f"{found[1]} ({', '.join(self.labels(found[2]))})", text
        )

    def labels(self, text: str) -> tuple[str, ...]:
        """Return the labels in a list such as ``job, route`` and those they imply."""
        found: dict[str, None] = {}
        for label in filter(None, text.split(", ")):
            more = {"job": self.service, "instance": self.process}.get(label, ())
            found.update(dict.fromkeys((*more, label)))
        return tuple(found)

    def text(self, template: str) -> str:
        """Return a template for people that names services and processes in full."""
        service = "".join(_if_there(label, "{{ . }}/") for label in self.service)
        process = "".join(_if_there(label, " ({{ . }})") for label in self.process)
        return template.replace(_JOB_TEXT, f"{service}{_JOB_TEXT}").replace(
            _INSTANCE_TEXT, f"{_INSTANCE_TEXT}{process}"
        )


def _if_there(label: str, text: str) -> str:
    return f"{{{{ with $labels.{label} }}}}{text}{{{{ end }}}}"
