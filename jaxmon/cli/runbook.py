"""``jaxmon runbook``: in the terminal, one for each alert, and guides for the rest."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jaxmon.cli import output
from jaxmon.cli.options import AS_JSON, LABEL, NEW_FILE, argument, option, subcommand
from jaxmon.errors import CommandError


if TYPE_CHECKING:
    from jaxmon_alerts.slo import Slos

DIRECTORY = Path(__file__).resolve().parent.parent / "runbooks"
"""A link to the directory in a source tree, the files themselves in a wheel."""

GUIDES = {
    "symptoms": "By symptom: what you see, what it may be, and what to do.",
    "triage": "Where to look first: compile, data, memory, hardware, network or code.",
    "unknown": "What to do about a problem that has no runbook.",
    "reach": "How to get a shell beside a process, and what the commands print.",
    "post-mortem": "What to keep before a restart, and how to write it up.",
}
"""Pages that belong to no alert, with what they are about, in the order of reading."""

_PREFIX, _LIST = "Jaxmon", "see: jaxmon runbook list"
_ALIKE = 0.85
_QUERY = r"(?ms)^ *```promql\n.*?^ *```$"
_PLACEHOLDER = r"\$([a-z_]+)"
# Matches series without the label as well.
_ANY = ".*"


@click.group
def command() -> None:
    """
    Show the runbook of an alert, and guides for what has none.

    \b
    By what you see: jaxmon runbook show symptoms
    With many alerts at once: jaxmon runbook show triage
    """


@subcommand(command, "list")
def list_names(*, as_json: bool = AS_JSON) -> None:
    """
    List guides and runbooks with their meaning.

    Each takes one line if the output is not a terminal.
    """
    from jaxmon.host.formats.layout import wrapped

    every = {**GUIDES, **{name: summary(name) for name in names()}}
    size = max(map(len, every)) + 2
    width = output.report_width() if output.is_terminal(sys.stdout) else sys.maxsize
    text = [
        line
        for name, meaning in every.items()
        for line in wrapped(meaning, width, first=f"{name:{size}}", rest=" " * size)
    ]
    output.result(every, text, as_json=as_json)


@subcommand(command)
def show(
    *,
    name: str = argument(),
    labels: tuple[tuple[str, str], ...] = option(LABEL, "--label", multiple=True),
    slo_file: Path | None = option(NEW_FILE, "--slo"),
    as_json: bool = AS_JSON,
) -> None:
    """
    Print the runbook of the alert NAME, or a guide.

    Its queries can be pasted. They select what the labels say; labels that are not
    given match everything.

    Options:
        labels: A label of the alert, for the queries; may be repeated.
        slo_file: Your slo.yaml, if your services and processes have labels of their
            own.

    Examples:
      jaxmon runbook show triage
      jaxmon runbook show JaxmonRecompileStorm --label job=web --label cluster=eu
    """
    from jaxmon.symptoms.alert import FORMER_NAMES

    found = {name.lower(): name for name in (*GUIDES, *names(), *FORMER_NAMES)}
    for spelling in (name.lower(), f"{_PREFIX}{name}".lower()):
        if title := found.get(spelling):
            if heir := FORMER_NAMES.get(title):
                output.line(f"{title} is no alert any more; see {heir}:", err=True)
            title = (heir or title).partition("/")[0]
            text = _selecting(title, dict(labels), slo_file)
            document = {"name": title, "text": text}
            output.result(document, text, as_json=as_json)
            return
    having = [title for title in found.values() if name.lower() in title.lower()]
    close = having[:3] or difflib.get_close_matches(name, found.values(), 3, 0.6)
    alike = difflib.get_close_matches(name, close, 1, _ALIKE)
    if not alike and re.fullmatch(rf"{_PREFIX}\w+BudgetBurn", name):
        msg = f"no runbook {name!r}: that of your own objective is at `runbooks` of "
        msg += "your slo.yaml; see also: jaxmon runbook show unknown"
        raise CommandError(msg)
    hint = f"did you mean {', '.join(close)}? By" if close else f"{_LIST}; by"
    msg = f"no runbook {name!r}; {hint} what you see: jaxmon runbook show symptoms"
    raise CommandError(msg)


def names() -> list[str]:
    """Return the names of all runbooks, which are those of the alerts."""
    return sorted(path.stem for path in DIRECTORY.glob(f"{_PREFIX}*.md"))


def _selecting(title: str, labels: dict[str, str], slo_file: Path | None) -> str:
    text = read(title)
    if not labels:
        return filled(text, labels)
    from jaxmon_alerts import slo

    slos = slo.load(slo_file)
    site = slos.site
    allowed = {*site.labels_of_series, *_labels(title, slos)}
    if unknown := [name for name in labels if name not in allowed]:
        having = "alerts have" if title in GUIDES else f"{title} has"
        msg = (
            f"unknown label {unknown[0]!r}; {having} {', '.join(sorted(allowed))}; "
            "slo.yaml has others of your services: --slo slo.yaml"
        )
        raise CommandError(msg)
    found = filled(text, labels, site.service_labels, site.process_labels)
    if unused := [name for name in labels if f"{name}=~" not in found]:
        output.line(f"no query here selects by {', '.join(unused)}", err=True)
    return found


def _labels(title: str, slos: Slos) -> set[str]:
    """Return the labels that alerts have: those called *title*, of a guide all."""
    from jaxmon_alerts.rules import all_alerts

    found = {"alertname", "severity", "job", "instance", *dict(slos.site.labels)}
    for alert in all_alerts(slos):
        if title in {*GUIDES, alert.name}:
            found |= alert.kept
    return found


def filled(
    text: str,
    labels: Mapping[str, str],
    service: Iterable[str] = (),
    process: Iterable[str] = (),
) -> str:
    """
    Return the runbook *text* with *labels* in its queries: they replace placeholders
    such as ``$job``. A placeholder without a label matches everything. Other labels of
    a *service* are selected beside the cluster, those of a *process* beside the
    instance.
    """

    def value(match: re.Match[str]) -> str:
        given = labels.get(match[1])
        return _ANY if given is None else _escaped(given)

    def query(match: re.Match[str]) -> str:
        block = match[0]
        for beside, others in (("cluster", service), ("instance", process)):
            usual = f'{beside}=~"${beside}"'
            more = [
                f'{name}=~"${name}"'
                for name in others
                if name in labels and name != beside
            ]
            block = block.replace(usual, ",".join((usual, *more)))
        return re.sub(_PLACEHOLDER, value, block)

    return re.sub(_QUERY, query, text)


def read(name: str) -> str:
    """Return the text of the runbook *name*, one of `names`."""
    return (DIRECTORY / f"{name}.md").read_text(encoding="utf-8")


def summary(name: str) -> str:
    """Return the first sentence of the meaning of the alert *name*."""
    _, _, meaning = read(name).partition("## Meaning")
    paragraph = " ".join(meaning.strip().partition("\n\n")[0].split())
    sentence, dot, _ = paragraph.partition(". ")
    return f"{sentence}." if dot else paragraph


def _escaped(value: str) -> str:
    """Return *value* as a regular expression of Prometheus, within quotes."""
    pattern = re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", value)
    return pattern.replace("\\", "\\\\").replace('"', '\\"')
