"""The report of all checks, in Markdown."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

from tools.markdown import table
from tools.silicon.checks import CHECKS
from tools.silicon.running import Result


_PACKAGES = ("jax", "jaxlib", "nvidia-ml-py", "nvidia-nccl-cu13", "nvidia-nccl-cu12")
_MARKS = {True: "yes", False: "**no**", None: ""}


def line(result: Result) -> str:
    """Return one line about *result*."""
    agreed = [one.right for one in result.findings if one.right is not None]
    about = result.why.splitlines()[-1] if result.why else ""
    if agreed:
        about = f"{sum(agreed)} of {len(agreed)} comparisons agree"
    return f"{result.status:18} {result.name:10} {result.seconds:5.0f} s  {about}"


def details(result: Result) -> Iterator[str]:
    """Yield a line for each comparison."""
    for one in result.findings:
        mark = {True: "  ", False: "! ", None: "  "}[one.right]
        expected = f"  (expected {one.expected})" if one.expected else ""
        yield f"    {mark}{one.name}: {one.ours}{expected}"


def document(results: Sequence[Result], device: str) -> str:
    """Return the report."""
    return "\n".join(_lines(results, device)) + "\n"


def _lines(results: Sequence[Result], device: str) -> Iterator[str]:
    yield "# On an accelerator\n"
    known = [f"{name} {number}" for name in _PACKAGES if (number := _version(name))]
    today = datetime.now(UTC).date().isoformat()
    python = platform.python_version()
    yield f"{today}, {device}, Python {python}, {', '.join(known)}.\n"
    counts = Counter(one.status for one in results)
    yield ", ".join(f"{number} {status}" for status, number in counts.items()) + ".\n"
    for result in results:
        yield f"## {result.name}: {result.status}\n"
        yield f"{CHECKS[result.name].text} ({result.seconds:.0f} s)\n"
        if result.why:
            yield f"```text\n{result.why.strip()}\n```\n"
        if result.findings:
            rows = ((*one[:3], _MARKS[one.right]) for one in result.findings)
            yield table(("", "jaxmon", "expected", "agrees"), rows, "lrr")
            yield ""


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
