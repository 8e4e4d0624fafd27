"""
What in a path or a flag is different in each process, so that no other uses it again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from jaxmon import interrupts


_LEAST_PID = 100
"""Lower ones occur in names for other reasons, as in ``v2``."""

_EARLIER_SECONDS = 300.0
"""Time between a launcher's timestamp and the start of the agent."""

_EPOCH = r"(?<!\d)(\d{10})(?:\d{3})?(?!\d)"
_DATE = r"(?<!\d)(20\d\d)-?(\d\d)-?(\d\d)[-_T ]?(\d\d)[-:.h]?(\d\d)[-:.m]?(\d\d)(?!\d)"
_TEMPORARY = r"(?:^|/)(tmp[a-z0-9_]{8})(?:/|$)"
NOT_IN_KEYS = ("--xla_dump", "--xla_force_host_platform", "--xla_hlo_profile")
"""Beginnings of flags that JAX leaves out of its keys."""


class Moment(NamedTuple):
    """
    The process, and a period in Unix time.

    Attributes:
        pid: of the process.
        start: when the agent started.
        now: the current time.
    """

    pid: int
    start: float
    now: float


def varying(text: str, moment: Moment) -> str:
    """
    Return what in *text* is different in each process or run, such as ``the process id
    4711``; empty if nothing is.
    """
    pid = moment.pid
    if pid >= _LEAST_PID and re.search(rf"(?:^|[-_./=]|pid){pid}(?:$|[-_./])", text):
        return f"the process id {pid}"
    for number in re.findall(_EPOCH, text):
        if _is_recent(float(number), moment):
            return f"the time {number}"
    for found in re.finditer(_DATE, text):
        if any(_is_recent(time, moment) for time in _times(found)):
            return f"the time {found[0]}"
    temporary = re.search(_TEMPORARY, text)
    return f"the temporary name {temporary[1]}" if temporary else ""


def varying_flag(environ: Mapping[str, str], moment: Moment) -> tuple[str, str] | None:
    """
    Return the first flag of XLA that is part of the cache key and different in each
    process, and what in it is; `None` if there is none.
    """
    for variable in ("XLA_FLAGS", "LIBTPU_INIT_ARGS"):
        for flag in environ.get(variable, "").split():
            if not flag.startswith(NOT_IN_KEYS) and (part := varying(flag, moment)):
                return flag.partition("=")[0], part
    return None


def _is_recent(time: float, moment: Moment) -> bool:
    # Whoever wrote it may have rounded it up.
    return moment.start - _EARLIER_SECONDS <= time <= moment.now + 1


def _times(found: re.Match[str]) -> list[float]:
    """Return the Unix times that a date may mean: in local time, or in UTC."""
    try:
        time = datetime(*map(int, found.groups()))  # type: ignore[arg-type] # noqa: DTZ001 - two zones below
        return [time.timestamp(), time.replace(tzinfo=UTC).timestamp()]
    except (ValueError, OverflowError, OSError) as error:
        interrupts.pass_on(error)
        return []
