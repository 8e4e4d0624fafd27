"""
What identifies services and processes at a site.

Queries say ``job`` for a service and ``instance`` for what is scraped. Where several
clusters share a Prometheus, or namespaces a cluster, that is not enough: there, more
labels must be kept in every aggregation and compared in every match.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


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

    def labels(self, ours: Iterable[str]) -> tuple[str, ...]:
        """Return *ours* and the labels that they imply, each once."""
        found: dict[str, None] = {}
        for label in filter(None, ours):
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
