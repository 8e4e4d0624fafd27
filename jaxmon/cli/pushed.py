"""Output of ``jaxmon dashboards push``: a table or JSON, and the exit code."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from jaxmon.host.formats.layout import clean
from jaxmon_dashboards.grafana.push import Folder, Outcome, PushResult, Relation


DIFFERENT = 3
PARTIAL = 4
PLANNED = 5

_WIDTH = 80
_PLANNED_WORDS = {
    Relation.CREATE: "would create",
    Relation.UPDATE: "would update",
    Relation.DRIFTED: "would replace",
}


@dataclass(frozen=True)
class PushReport:
    """A push to a Grafana, or its preview; *makes_folder* if that was missing."""

    url: str
    version: str
    folder: Folder
    makes_folder: bool
    dry_run: bool
    results: Sequence[PushResult]

    def exit_code(self) -> int:
        """Return the exit code that the help of the command promises."""
        found = {result.outcome for result in self.results}
        if found == {Outcome.FAILED}:
            return 1
        if Outcome.FAILED in found:
            return PARTIAL
        if found & {Outcome.REFUSED, Outcome.PENDING}:
            return DIFFERENT
        return PLANNED if Outcome.PLANNED in found else 0

    def document(self) -> dict[str, Any]:
        """Return everything as one object."""
        return {
            "grafana": {"url": self.url, "version": self.version},
            "folder": {"uid": self.folder.uid, "created": self.makes_folder},
            "dry_run": self.dry_run,
            "dashboards": [
                {
                    **{"format" if key == "model" else key: of for key, of in whole},
                    "backup": str(result.backup) if result.backup else None,
                }
                for result in self.results
                for whole in [asdict(result).items()]
            ],
            "summary": self._counts(),
        }

    def lines(self) -> list[str]:
        """Return lines for a terminal of 80 columns."""
        made = ""
        if self.makes_folder:
            made = " (would be created)" if self.dry_run else " (new)"
        head = f"Grafana {self.version} at {self.url}, folder {self.folder.uid}{made}"
        words = [_word(result) for result in self.results]
        first = max((len(word) for word in words), default=0)
        second = max((len(result.uid) for result in self.results), default=0)
        table = []
        for word, result in zip(words, self.results, strict=True):
            table += [f"  {word:{first}}  {result.uid:{second}}  {clean(result.title)}"]
            table += _details(result, " " * (first + 4))
        counts = ", ".join(f"{n} {word}" for word, n in self._counts().items())
        tail = "; nothing was written" if self.dry_run else ""
        counts = f"{counts or 'no dashboards'}{tail}."
        return [*_wrapped(head, "", "  "), "", *table, "", counts]

    def advice(self) -> str:
        """Return what to do next, ``""`` if nothing."""
        drifted = any(
            (result.state, result.outcome) == (Relation.DRIFTED, Outcome.REFUSED)
            for result in self.results
        )
        if not drifted:
            return ""
        return (
            "To see the edits: jaxmon dashboards diff. To keep them, save a copy in\n"
            "Grafana under another title. Then push --force, which also makes a backup."
        )

    def _counts(self) -> dict[str, int]:
        return dict(Counter(result.outcome.value for result in self.results))


def _word(result: PushResult) -> str:
    if result.outcome is Outcome.PLANNED:
        return _PLANNED_WORDS[result.state]
    return result.outcome.value


def _details(result: PushResult, indent: str) -> Iterator[str]:
    refused = result.outcome is Outcome.REFUSED
    reason = f"{result.state}: {result.reason}" if refused else result.reason
    for line in (reason, result.url, f"backup: {result.backup}"):
        if line and line != "backup: None":
            yield from _wrapped(line, indent)


def _wrapped(text: str, indent: str, rest: str | None = None) -> list[str]:
    """Return *text* in lines of 80 columns; an address or a path stays in one piece."""
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=indent if rest is None else rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
