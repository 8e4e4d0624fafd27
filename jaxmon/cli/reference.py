"""Reference documentation, and what is generated of the settings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import Field, fields
from typing import Any

import click

from jaxmon import catalog
from jaxmon.agent.jaxlink.names import RELEASES, SECTIONS, Name
from jaxmon.catalog import HOOK_ACTIVE, Metric, conventions
from jaxmon.catalog.model import GAUGES
from jaxmon.host.files.whole import HEADER, WARNING
from jaxmon.host.formats.durations import seconds
from jaxmon.limits import Limits
from jaxmon.settings import DIRECTORY, PREFIX, Settings, declared, meanings, wanted


# Of a terminal.
_WIDTH = 80

_SOURCES = {
    catalog.AGENT: "agent",
    catalog.SIDECAR: "sidecar",
    catalog.BOTH: "agent, sidecar",
}


_ALIKE = """
Results are printed as JSON with `--json`, and written to a file with `--out FILE`,
whole or not at all. What writes several files takes a directory with `--out`.
`--format` is the form of generated files. `jaxmon completion` installs completion.
"""


def commands(command: click.Command, name: str) -> str:
    """Return `docs/cli.md`: the help of *command* and all below, and exit codes."""
    contexts = list(_contexts(command, name, None))
    return page(
        HEADER,
        "# Commands",
        _ALIKE,
        *map(_section, contexts),
        "## Exit codes",
        "Those of `jaxmon` are of all commands; a command that is not listed has no "
        "others.",
        table(
            ("Command", "Code", "Meaning"),
            (row for context in contexts for row in _codes(context)),
        ),
    )


def _contexts(
    command: click.Command, name: str, parent: click.Context | None
) -> Iterator[click.Context]:
    # A separate context: width and colour must not follow the terminal.
    context = click.Context(
        command,
        info_name=name,
        parent=parent,
        terminal_width=_WIDTH,
        max_content_width=_WIDTH,
        color=False,
        help_option_names=["-h", "--help"],
    )
    yield context
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            if found is not None and not found.hidden:
                yield from _contexts(found, child, context)


def _section(context: click.Context) -> str:
    text = context.command.get_help(context).rstrip()
    return f"## {context.command_path}\n\n```text\n{text}\n```"


def _codes(context: click.Context) -> Iterator[tuple[str, str, str]]:
    _, _, declared = (context.command.epilog or "").partition("Exit codes")
    codes = declared.partition("\n\n")[0].partition(":\n")[2]
    # Further lines of a meaning are indented deeper.
    for entry in re.split(r"\n(?=  \S)", codes.rstrip()) if codes else ():
        code, *meaning = entry.replace("otherwise,", "otherwise").split()
        yield f"`{context.command_path}`", code, " ".join(meaning)


def metrics(listed: Sequence[Metric] = catalog.METRICS) -> str:
    """Return `docs/metrics.md`: how to read the metrics, and a table for each group."""
    groups = dict.fromkeys(metric.group for metric in listed)
    tables = [
        part
        for group in groups
        for part in (
            f"## {group}",
            _group([metric for metric in listed if metric.group == group]),
        )
    ]
    return page(HEADER, "# Metrics", _introduction(), *tables, *_conventions(listed))


def _conventions(listed: Sequence[Metric]) -> Iterator[str]:
    found = [(metric, conventions.CONVENTIONS.get(metric)) for metric in listed]
    if not any(convention for _, convention in found):
        return
    yield "## Names by OpenTelemetry's conventions"
    yield (
        "Pushed by [OTLP](opentelemetry.md#names-by-convention) with "
        "`otlp_names=semantic`, these metrics have the names of the semantic "
        f"conventions {conventions.VERSION}; all others, and accelerators that are no "
        "GPUs, keep theirs."
    )
    rows = []
    for metric, about in found:
        if about is None:
            continue
        renamed = [f"`{label}` as `{name}`" for label, name in about.labels]
        fixed = [f"`{name}` is `{value}`" for name, value in about.attributes]
        rows.append(
            (
                f"`{metric.name}`",
                f"`{about.name}`",
                about.instrument,
                f"`{about.unit}`",
                "<br>".join([*renamed, *fixed]) or "-",
            )
        )
    yield table(("Metric", "By convention", "Instrument", "Unit", "Attributes"), rows)


def _group(metrics: Sequence[Metric]) -> str:
    rows = [
        (
            f"`{metric.name}`",
            metric.kind,
            _labels(metric),
            metric.unit or "-",
            _SOURCES[metric.sources],
            metric.help + _buckets(metric) + _limits(metric),
        )
        for metric in metrics
    ]
    return table(("Metric", "Kind", "Labels", "Unit", "Source", "Meaning"), rows)


def _labels(metric: Metric) -> str:
    values = dict(metric.values)
    cells = []
    for label in metric.labels:
        closed = f": {', '.join(values[label])}" if label in values else ""
        cells.append(f"`{label}`{closed}")
    return "<br>".join(cells) or "-"


def _buckets(metric: Metric) -> str:
    if not metric.buckets:
        return ""
    return f" Buckets: {', '.join(f'{bound:g}' for bound in metric.buckets)}."


def _limits(metric: Metric) -> str:
    if metric.limits in (None, (0, 1)):
        return ""
    low, high = metric.range
    return f" From {low:g} to {high:g}."


def _introduction() -> str:
    calls, hits = catalog.JIT_CALLS.name, catalog.JIT_CACHE_HITS.name
    compile_seconds = catalog.COMPILE_SECONDS.name
    units = ", ".join(
        f"{low:g} to {high:g} {unit}" for unit, (low, high) in GAUGES.items()
    )
    return f"""
The *agent* runs inside the JAX process, the *sidecar* next to it. The sidecar relays
every series of the agents on its host and adds `worker`, the slot of the process:
scrape either, not both under the same job. Histograms appear as `_bucket`, `_sum` and
`_count`. A series that JAX cannot provide is absent, not zero: the CPU has no allocator
statistics, for example.

A value that the sidecar reads must be plausible: counters are not negative, and gauges
lie in the range given with them, or in that of their unit:
{units}.
Drivers report 4294967295 for "not available", for example; such a value is dropped,
counted by `{catalog.DROPPED.name}{{what="figure"}}`, and logged once per metric.
A ratio of up to 1.01 is exported as 1, because its two counters are not read
at the same moment.

`function` is `module.qualname` of the Python function that was jitted. Beyond
`max_functions` distinct functions (see [settings](settings.md)), all others share
`function="other"`, and `{catalog.LABEL_OVERFLOW.name}` counts them.

Example queries:

- Cache hit rate by function; near 1 once a program is warm:
  `rate({hits}[5m]) / rate({calls}[5m])`
- Recompiles by function and cause; 0 once a program is warm:
  `sum by (function, cause) (rate({catalog.RECOMPILES.name}[5m])) > 0`
- Fraction of wall time that a process spends compiling:
  `sum without (function, phase, le) (rate({compile_seconds}_sum[5m]))`
- A compile that hangs or takes very long:
  `{catalog.COMPILE_OLDEST_SECONDS.name} > {seconds(Limits().stuck_after):.0f}`
- Hit rate of the persistent compilation cache:
  `sum(rate({catalog.PERSISTENT_CACHE_REQUESTS.name}{{result="hit"}}[1h])) /
  sum(rate({catalog.PERSISTENT_CACHE_REQUESTS.name}[1h]))`
- Device memory in use, as a fraction of the limit:
  `{catalog.DEVICE_MEMORY_BYTES.name}{{kind="in_use"}} / ignoring(kind)
  {catalog.DEVICE_MEMORY_BYTES.name}{{kind="limit"}}`
"""


def settings(exporter: click.Command) -> str:
    """Return `docs/settings.md`: fields of `Settings`, and options of *exporter*."""
    return page(
        HEADER,
        "# Settings",
        "## Agent",
        "Pass a setting to `jaxmon.instrument` by name, or set its variable;\n"
        "arguments take precedence over the environment. Booleans are `1`, `true`,\n"
        "`yes`, `on` or `0`, `false`, `no`, `off`; `none` means `None`, if\n"
        "allowed, and an empty variable counts as unset. An invalid value raises\n"
        "`jaxmon.SettingsError` before anything is hooked.",
        _agent(),
        "## Sidecar",
        "Options of [`jaxmon exporter`](cli.md#jaxmon-exporter); an option takes\n"
        "precedence over its variable.",
        _sidecar(exporter),
    )


def _agent() -> str:
    meaning = meanings(Settings)
    rows = [
        (
            f"`{setting.name}`",
            f"`{PREFIX}{setting.name.upper()}`",
            f"`{setting.default!r}`",
            _takes(setting),
            meaning[setting.name],
        )
        for setting in fields(Settings)
    ]
    return table(("Setting", "Variable", "Default", "Takes", "Meaning"), rows)


def _takes(setting: Field[Any]) -> str:
    words, about = wanted(setting), declared(setting)
    if about.within is None:
        return words
    low, high = about.within
    span = f"{low} to {high}"
    ranged = words if span in words else f"{words}, {span}"
    return f"{ranged}, or 0" if about.off else ranged


def _sidecar(exporter: click.Command) -> str:
    rows = []
    for option in exporter.params:
        if isinstance(option, click.Option) and not option.hidden:
            # Some releases of click keep a sentinel, not None, for "no default".
            default = option.to_info_dict()["default"]
            nothing = default is False or default in (None, (), "")
            shown = "-" if nothing else f"`{default}`"
            variable = f"`{option.envvar}`" if option.envvar else "-"
            rows.append((f"`{option.opts[0]}`", variable, shown, option.help or ""))
    return table(("Option", "Variable", "Default", "Meaning"), rows)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; a ``|`` inside a cell is escaped."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    every = [head, ["---"] * len(head), *cells]
    return "\n".join(f"| {' | '.join(row)} |" for row in every)


def page(*parts: str) -> str:
    """Return *parts* as one text, with blank lines between them."""
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


INTERNALS = "docs/contributors/jax-internals.md"


def internals() -> str:
    """Return the document: how to read it, then one table for each section."""
    tables = [
        part
        for title, names in SECTIONS
        for part in (
            f"## {title}",
            table(("Name", "Without it", *RELEASES), _name_rows(names)),
        )
    ]
    return page(HEADER, "# JAX internals", _NAMES_INTRODUCTION, *tables)


def _name_rows(names: Sequence[Name]) -> Iterator[tuple[str, ...]]:
    for name in names:
        alternatives = f"<br>*one of: {name.group}*" if name.group else ""
        costs = ", ".join(
            f"`{cost.name}`" if isinstance(cost, Metric) else cost
            for cost in name.costs
        )
        hook = f"<br>*hook `{name.hook}` is inactive*" if name.hook else ""
        marks = ["✓" if mark == "y" else "" for mark in name.seen]
        yield f"`{name.path}`{alternatives}", f"{costs}{hook}", *marks


_NAMES_INTRODUCTION = f"""
Most of what jaxmon reports has no public API in JAX, so jaxmon uses names that may
change with any release of JAX. All of them are in `jaxmon/agent/jaxlink/`, and `make
lint` rejects them elsewhere. `make compat` compares this page with every supported JAX.

`jaxmon doctor` lists the names that the installed JAX lacks, and which metrics are
missing because of that. A hook that cannot attach reports so once in the log and by
`{HOOK_ACTIVE.name}`; everything else continues to work.

- `jax._src.pjit._infer_params` is an attribute of a module or a class, or a field.
- `jax._src.pjit:_cpp_pjit.cache_miss` is a function whose frames are inspected;
  `(fun)` after it is a variable in those frames.
- `<jitted>._cache_size` is an attribute of an object that JAX creates.
- `/jax/core/...` is an event of `jax.monitoring`.
- Names in quotes are part of a message.
- Of names with the same *one of* entry, one suffices.
"""


OPTIONS, _CLASS = "jaxmon/options.py", "Options"

_OPTIONS_HEAD = f'''"""The settings as keyword arguments, for type checkers."""

# {WARNING}

from __future__ import annotations

from os import PathLike
from typing import TypedDict


class {_CLASS}(TypedDict, total=False):
    """What `jaxmon.instrument` takes; see `docs/settings.md`."""

'''


def options_module() -> str:
    """Return the module."""
    kinds = {setting.name: str(setting.type) for setting in fields(Settings)}
    lines = [
        f"    {name}: {'str | PathLike[str] | None' if kind == DIRECTORY else kind}\n"
        for name, kind in kinds.items()
    ]
    return _OPTIONS_HEAD + "".join(lines)
