"""The limits that a command judges by: those of a file, or of the run directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from jaxmon.errors import CommandError, ConfigFileError, SloError


if TYPE_CHECKING:
    from jaxmon.limits import Limits

_CHOSEN = f"{__name__}.chosen"


def from_file(path: Path) -> Limits:
    """
    Return the limits in *path*: JSON, or else a ``slo.yaml``.

    Raises:
        CommandError: it is invalid, or cannot be read.
    """
    from jaxmon.limits import shared

    try:
        if path.suffix == ".json":
            return shared.read(path)
        from jaxmon_alerts import slo

        return slo.load(path).limits
    except SloError as error:
        raise CommandError(str(error)) from error
    except (OSError, ConfigFileError) as error:
        msg = f"{path}: {error}"
        raise CommandError(msg) from error


def limits_of(run_dir: Path | None) -> Limits:
    """
    Return the limits that the command was given, else those of its run directory; on
    the command's thread.
    """
    from jaxmon.limits import shared

    return chosen() or shared.current(run_dir)


def chosen() -> Limits | None:
    """Return the limits that the command was given, on the command's thread."""
    found: Limits | None = click.get_current_context().meta.get(_CHOSEN)
    return found


def _choose(context: click.Context, _: click.Parameter, path: Path | None) -> None:
    if path is not None:
        context.meta[_CHOSEN] = from_file(path)


LIMITS = click.option(
    "--limits",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    envvar="JAXMON_LIMITS",
    show_envvar=True,
    expose_value=False,
    callback=_choose,
    help="Judge by the limits in this slo.yaml, or JSON; by default those that the "
    "sidecar of the run directory was given.",
)
