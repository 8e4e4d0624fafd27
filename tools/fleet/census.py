"""How many series a process, an accelerator and a host have, by group of metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from jaxmon.catalog import BY_NAME
from tools.fleet.layout import GPUS, WORKERS
from tools.fleet.templates import Line, Templates


def census(templates: Templates) -> dict[str, Counter[str]]:
    """Return the number of series by group of the catalogue, for each kind of owner."""
    devices = [line for lines in templates.devices.values() for line in lines]
    found = {
        f"process ({name})": _count([*lines, *devices])
        for name, lines in sorted(templates.programs.items())
    }
    found["accelerator"] = _count(templates.gpus[0])
    found["host"] = _count(templates.host)
    return found


def census_table(templates: Templates) -> str:
    """Return the census as Markdown, and the series for each process."""
    found = census(templates)
    groups = sorted({group for count in found.values() for group in count})
    heads = " | ".join(found)
    lines = [f"| metrics | {heads} |", "|---|" + "---:|" * len(found)]
    for group in groups:
        numbers = " | ".join(str(count[group] or "") for count in found.values())
        lines.append(f"| {group} | {numbers} |")
    totals = {name: count.total() for name, count in found.items()}
    numbers = " | ".join(f"**{total}**" for total in totals.values())
    lines.append(f"| **all** | {numbers} |")
    processes = [total for name, total in totals.items() if name.startswith("process")]
    mean = sum(processes) / len(processes)
    mean += (totals["host"] + GPUS * totals["accelerator"]) / WORKERS
    lines += [
        "",
        f"{mean:,.0f} series for each process, host and accelerators included.",
    ]
    return "\n".join(lines) + "\n"


def _count(lines: Iterable[Line]) -> Counter[str]:
    groups = (BY_NAME.get(line.family[0]) for line in lines)
    return Counter(metric.group if metric else "other" for metric in groups)
