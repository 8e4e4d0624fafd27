"""
Options that several commands have.
"""

from __future__ import annotations

from pathlib import Path

import click


RUN_DIR = click.option(
    "--run-dir",
    # Whether it can be read is for us to say, with what to do about it.
    type=click.Path(path_type=Path, readable=False),
    envvar="JAXMON_RUN_DIR",
    show_envvar=True,
    help="Where the agents' sockets are; by default where agents of this user put "
    "them.",
)
