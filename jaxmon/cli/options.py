"""
Options that several commands have.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click


class Number(click.FloatRange):
    """
    A number that is one: click takes ``nan`` for within any range, and infinity too.
    """

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """
        Return *value* as a number.

        Raises:
            click.BadParameter: it is none, or out of range.
        """
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number

    def _describe_range(self) -> str:
        # click would show one without bounds as x<=None.
        if self.min is None and self.max is None:
            return ""
        return super()._describe_range()


RUN_DIR = click.option(
    "--run-dir",
    # Whether it can be read is for us to say, with what to do about it.
    type=click.Path(path_type=Path, readable=False),
    envvar="JAXMON_RUN_DIR",
    show_envvar=True,
    help="Where the agents' sockets are; by default where agents of this user put "
    "them.",
)
