"""
Options that name a place in a network, checked where the command line is read.

Callbacks of click, which end the command with exit code 2 and the reason.
"""

from __future__ import annotations

import click


def page(_context: click.Context, _parameter: click.Parameter, url: str) -> str:
    """Return *url* of a page that can be read; empty stays empty."""
    if not url:
        return ""
    from jaxmon_exporter.collectors.dcgm.fetch import usable

    try:
        return usable(url)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def listened(_context: click.Context, _parameter: click.Parameter, host: str) -> str:
    """Return *host*, an address to listen on."""
    from jaxmon.http.listeners import numeric_address

    try:
        numeric_address(host, 0)
    except OSError as error:
        raise click.BadParameter(error.strerror or str(error)) from error
    return host


def names(
    _context: click.Context, _parameter: click.Parameter, chosen: tuple[str, ...]
) -> tuple[str, ...]:
    """Return *chosen* names that `Host` may have."""
    from jaxmon.http.hosts import Hosts

    try:
        Hosts(chosen)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return chosen
