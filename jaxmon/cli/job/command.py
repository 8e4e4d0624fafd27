"""``jaxmon job``: judges the processes of a job together."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jaxmon.cli import output
from jaxmon.cli.options import Number, Url
from jaxmon.cli.servers import Access
from jaxmon.cli.servers import access as server_access
from jaxmon.errors import CommandError


if TYPE_CHECKING:
    from jaxmon.cli.job.asking import Credentials
    from jaxmon.monitoring.discovery import Target
    from jaxmon.report.job.model import State, Verdict

_HUNG, _NOTHING = 1, 3
_AFTER = 30.0
_EVERY = 5.0
_CLEAR = "\x1b[H\x1b[2J"
_COLOURS = {"hung": "red", "waiting": "yellow", "progressing": "green"}


@click.group
def command() -> None:
    """
    Judge the processes of a `jax.distributed` job together.

    docs/job.md describes what is needed for that.
    """


@command.command(
    epilog="""
\b
Exit codes:
  0 all jobs get on, are over, or wait for what may take its time
  1 a job hangs
  2 usage error
  3 no host answered, or no process of a job runs there

\b
Examples:
  jaxmon job why --targets host-1:9467,host-2:9467
  jaxmon job why --targets ranks.train.svc:9467 --scheme https --ca-file ca.pem
  jaxmon job why --file-sd targets/train.json --stacks
"""
)
@click.option(
    "--targets",
    multiple=True,
    metavar="HOST:PORT,...",
    help="Sidecars to ask, separated by commas; repeatable. All addresses of a name "
    "are asked. The default port is 9467.",
)
@click.option(
    "--file-sd",
    "files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Ask those in this file, in the format of Prometheus's file_sd; repeatable.",
)
@click.option(
    "--http-sd",
    "urls",
    multiple=True,
    type=Url(),
    metavar="URL",
    help="Ask those that this address returns, as for Prometheus's http_sd; "
    "repeatable. No secret is sent there.",
)
@click.option(
    "--scheme",
    type=click.Choice(["http", "https"]),
    default="http",
    show_default=True,
    help="How to connect to targets that do not say it themselves.",
)
@click.option("--user", default="", help="Name for basic authentication.")
@click.option(
    "--password-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File containing the password of --user.",
)
@click.option(
    "--after",
    type=Number(1, 86_400),
    default=_AFTER,
    show_default=True,
    help="Seconds without progress that are called a hang, unless longer pauses are "
    "usual.",
)
@click.option(
    "--stacks",
    is_flag=True,
    help="Also print the stacks of all threads, those that differ first.",
)
@click.option("--watch", is_flag=True, help="Print it again and again, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@server_access
def why(
    *,
    targets: tuple[str, ...],
    files: tuple[Path, ...],
    urls: tuple[str, ...],
    scheme: str,
    user: str,
    password_file: Path | None,
    after: float,
    stacks: bool,
    watch: bool,
    as_json: bool,
    access: Access,
) -> None:
    """
    Say whether a job gets on, and if not, which rank the others wait for, and why.

    Asks the sidecars of all its hosts at the same time, which were started with
    `--peer-access`, and waits --timeout seconds for all of them together.
    """
    from jaxmon.monitoring.discovery import DiscoveryError

    if not (targets or files or urls):
        msg = "give --targets, --file-sd or --http-sd"
        raise click.UsageError(msg)
    credentials = _credentials(access, user, password_file)
    while True:
        try:
            found = _targets(targets, files, urls, scheme, access)
        except DiscoveryError as error:
            raise CommandError(str(error), exit_code=2) from error
        state = _look(
            found,
            credentials,
            seconds=access.timeout,
            after=after,
            stacks=stacks,
            as_json=as_json,
            clear=watch and not as_json,
        )
        if not watch:
            break
        time.sleep(_EVERY)
    if state.value == "hung":
        raise click.exceptions.Exit(_HUNG)
    if state.value == "unknown":
        raise click.exceptions.Exit(_NOTHING)


def _look(
    targets: Sequence[Target],
    credentials: Credentials,
    *,
    seconds: float,
    after: float,
    stacks: bool,
    as_json: bool,
    clear: bool,
) -> State:
    """Ask once, print what is found, and return how the worst job is."""
    from jaxmon.cli.job.asking import ask
    from jaxmon.report.job import stacks as grouped
    from jaxmon.report.job.document import document, worst
    from jaxmon.report.job.verdict import judge

    hosts = ask(targets, credentials, seconds=seconds, stacks=stacks)
    verdict = judge(hosts, after=after)
    groups: list[grouped.Group] = []
    if stacks:
        groups = grouped.groups(grouped.of_hosts(hosts))
    if as_json:
        whole = document(verdict)
        if stacks:
            whole["stacks"] = [one._asdict() for one in groups]
        output.document(whole)
        return worst(verdict)
    if clear and output.is_terminal(sys.stdout):
        output.control(_CLEAR)
    _print(verdict)
    if stacks:
        output.lines(["", *grouped.lines(groups, output.report_width())])
    return worst(verdict)


def _print(verdict: Verdict) -> None:
    from jaxmon.report.job.text import lines

    for line in lines(verdict, output.report_width()):
        state = line.partition(" ")[0].rstrip(":").lower()
        output.line(line, colour=_COLOURS.get(state))


def _credentials(access: Access, user: str, password_file: Path | None) -> Credentials:
    from jaxmon.cli.job.asking import Credentials
    from jaxmon.cli.servers import token_in

    if bool(user) != (password_file is not None):
        msg = "--user and --password-file belong together"
        raise click.UsageError(msg)
    password = ""
    if password_file is not None:
        password = token_in(password_file, "--password-file")
    token = "" if access.token_file is None else token_in(access.token_file)
    return Credentials(token, user, password, access.ca_file, access.insecure_http)


def _targets(
    texts: Sequence[str],
    files: Sequence[Path],
    urls: Sequence[str],
    scheme: str,
    access: Access,
) -> list[Target]:
    """
    Return the sidecars to ask.

    Raises:
        DiscoveryError: something is no target, there are none, or too many.
    """
    from jaxmon.monitoring import discovery
    from jaxmon.settings import SIDECAR_PORT

    found = [
        discovery.parsed(one, scheme=scheme, port=SIDECAR_PORT)
        for text in texts
        for one in text.split(",")
        if one.strip()
    ]
    for path in files:
        found += discovery.from_file(path, scheme=scheme, port=SIDECAR_PORT)
    for url in urls:
        document = discovery.fetched(url, access.ca_file, access.timeout)
        found += discovery.from_groups(
            document, "--http-sd", scheme=scheme, port=SIDECAR_PORT
        )
    every = list(discovery.expanded(found))
    if not every:
        msg = "there are no targets"
        raise discovery.DiscoveryError(msg)
    if len(every) > discovery.MOST_TARGETS:
        msg = (
            f"there are {len(every):,} targets; the limit is {discovery.MOST_TARGETS:,}"
        )
        raise discovery.DiscoveryError(msg)
    return every
