"""
The sidecars of a job, and what they report, all asked at once within one deadline.

Targets are in the formats of Prometheus: ``host:port``, ``file_sd``, ``http_sd``, and
names in DNS with one address for each host.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import click

from jaxmon.cli import output
from jaxmon.cli.options import FILE, URL, collected, option
from jaxmon.cli.servers import ACCESS, Access, token_in
from jaxmon.errors import ConfigFileError, JaxmonError, misuse, raised
from jaxmon.settings import SIDECAR_PORT


if TYPE_CHECKING:
    from jaxmon.facts.host import JobHost
    from jaxmon.host.http.session import Session


_MOST_TARGETS = 10_000
_MOST_BYTES = 16 << 20
_AT_ONCE = 64
# `[::1]:9467` as well.
_TARGET = r"(?:(https?)://)?([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?/?"
_SCHEMES = ("http", "https")


class ScrapeTarget(NamedTuple):
    """A server; *address* is where to connect if *host* has several, else empty."""

    scheme: str
    host: str
    port: int
    address: str = ""

    @property
    def name(self) -> str:
        """Host and port, as people write them, and the address if there are several."""
        of = f" ({self.address})" if self.address else ""
        return f"{self.host}:{self.port}{of}"


def parsed(text: str, *, scheme: str) -> ScrapeTarget:
    """Return the target in *text*: ``host:port``, or ``host``."""
    match = re.fullmatch(_TARGET, text.strip())
    port = SIDECAR_PORT if match is None or match[3] is None else int(match[3])
    if match is None or not 0 < port < 1 << 16:
        reason = f"{text[:80]!r} is not a target; give HOST:PORT"
        raise misuse(reason)
    return ScrapeTarget(match[1] or scheme, match[2], port)


def _from_file(path: Path, *, scheme: str) -> Iterator[ScrapeTarget]:
    from jaxmon.host.files.bounded import read_text
    from jaxmon.host.formats import json_text

    is_yaml = path.suffix in {".yml", ".yaml"}
    parse = _from_yaml if is_yaml else json_text.parse
    with raised(misuse, path, ConfigFileError, ValueError):
        document = parse(read_text(path, most=_MOST_BYTES, pipe=True))
    return from_groups(document, str(path), scheme=scheme)


def _fetched(url: str, ca_file: Path | None, seconds: float) -> Any:
    from http import HTTPStatus
    from http.client import HTTPException

    from jaxmon.host.http.client import Route, trusted
    from jaxmon.host.http.stream import Bounds
    from jaxmon.host.http.urls import Secrets, parts_of, secrets_of, shown, target_of

    parts = parts_of(url)
    try:
        route = Route.by_environment(parts, trusted(parts, ca_file))
        response = route.exchange(
            "GET",
            target_of(parts),
            Bounds(seconds, _MOST_BYTES),
            headers={"Accept": "application/json"},
        )
        if response.status != HTTPStatus.OK:
            msg = f"HTTP status {response.status}"
            raise ValueError(msg)  # noqa: TRY301 - one place says where
        return response.json()
    except (JaxmonError, OSError, HTTPException, ValueError) as error:
        secrets = Secrets(*secrets_of(parts))
        reason = f"no targets from {shown(parts)}: {secrets.redacted(str(error))}"
        raise misuse(reason) from None


def from_groups(document: Any, where: str, *, scheme: str) -> Iterator[ScrapeTarget]:
    """Yield the targets in *document*, a list of groups with ``targets``."""
    from jaxmon.facts.reader import mapping

    if not isinstance(document, list):
        reason = f"{where}: not a list of groups of targets, as in Prometheus's file_sd"
        raise misuse(reason)
    for group in map(mapping, document):
        targets = group.get("targets")
        if not isinstance(targets, list):
            reason = f"{where}: a group without a list of targets"
            raise misuse(reason)
        labelled = mapping(group.get("labels")).get("__scheme__")
        wanted = labelled if labelled in _SCHEMES else scheme
        for target in targets:
            yield parsed(str(target), scheme=wanted)


def expanded(
    targets: Iterable[ScrapeTarget], resolve: Callable[..., Iterable[Any]] | None = None
) -> Iterator[ScrapeTarget]:
    """Yield each target once, and one for each address of a name with several."""
    import socket

    for target in dict.fromkeys(targets):
        found: list[Any] = []
        with suppress(OSError, UnicodeError):
            host = target.host.strip("[]")
            lookup = resolve or socket.getaddrinfo
            found = [*lookup(host, target.port, type=socket.SOCK_STREAM)]
        families = {family for family, *_ in found}
        wanted = socket.AF_INET if socket.AF_INET in families else socket.AF_INET6
        addresses = {str(at[0]): None for family, *_, at in found if family == wanted}
        if len(addresses) > 1:
            yield from (target._replace(address=address) for address in addresses)
        else:
            yield target


def _from_yaml(text: str) -> Any:
    """Return a YAML document in JSON types; all scalars are texts."""
    import yaml

    from jaxmon.host.formats import yaml_file

    def plain(node: Any) -> Any:
        if isinstance(node, yaml.SequenceNode):
            return [plain(item) for item in node.value]
        if isinstance(node, yaml.MappingNode):
            return {str(key.value): plain(value) for key, value in node.value}
        return None if node is None else str(node.value)

    return plain(yaml_file.compose(text))


@dataclass(frozen=True, slots=True)
class Sidecars:
    """
    The sidecars of a job, as they were given; the agents of this host, if none were.

    Options:
        targets: Sidecars to ask, separated by commas; repeatable; without any, the
            agents of this host are read. All addresses of a name are asked. The default
            port is 9467.
        files: Ask those in this file, in the format of Prometheus's file_sd;
            repeatable.
        urls: Ask those that this address returns, as for Prometheus's http_sd;
            repeatable. No secret is sent there.
        scheme: How to connect to targets that do not say it themselves.
        user: Name for basic authentication.
        password_file: File containing the password of --user.
    """

    targets: tuple[str, ...] = option(str, multiple=True, metavar="HOST:PORT,...")
    files: tuple[Path, ...] = option(FILE, "--file-sd", multiple=True)
    urls: tuple[str, ...] = option(URL, "--http-sd", multiple=True)
    scheme: str = option(click.Choice(["http", "https"]), default="http")
    user: str = option(str, default="")
    password_file: Path | None = option(FILE)
    access: Access = ACCESS

    @property
    def local(self) -> bool:
        """Whether no sidecar was given."""
        return not (self.targets or self.files or self.urls)

    def ask(self, *, stacks: bool = False, timed: bool = False) -> list[JobHost]:
        """
        Return what the sidecars report, or why not, within one timeout, in their order;
        without any, what the agents of this host do.
        If *timed*, each is asked twice: the first response may wait for processes that
        hang; the time of the second is known well. Raises `CommandError`: a target is
        invalid.
        """
        if self.local:
            return [_of_this_host(stacks=stacks, past=timed)]
        from concurrent.futures import ThreadPoolExecutor

        from jaxmon.facts.host import JobHost
        from jaxmon.host.http.session import MonitoringError

        connect = self._connect()
        targets = self._found()
        end = time.monotonic() + self.access.timeout

        def ask(target: ScrapeTarget) -> JobHost:
            left = end - time.monotonic()
            if left <= 0:
                return JobHost(target.name, "there was no time left to ask it")
            try:
                answer = _asked(target, connect(target, left), stacks=stacks)
            except (MonitoringError, ValueError) as error:
                return JobHost(target.name, str(error))
            left = end - time.monotonic()
            if timed and left > 0:
                with suppress(MonitoringError, ValueError):
                    answer = _asked(target, connect(target, left))
            return answer

        with ThreadPoolExecutor(min(_AT_ONCE, len(targets)), "jaxmon-job") as pool:
            return list(pool.map(ask, targets))

    def _connect(self) -> Callable[[ScrapeTarget, float], Session]:
        from jaxmon.host.http.session import Session

        if bool(self.user) != (self.password_file is not None):
            msg = "--user and --password-file belong together"
            raise click.UsageError(msg)
        token = login = ""
        access = self.access
        if access.token_file is not None:
            token = token_in(access.token_file)
        if self.password_file is not None:
            password = token_in(self.password_file, "--password-file")
            login = f"{quote(self.user, safe='')}:{quote(password, safe='')}@"
            output.hide(token, password)
        else:
            output.hide(token)

        def connect(target: ScrapeTarget, seconds: float) -> Session:
            return Session(
                "sidecar",
                f"{target.scheme}://{login}{target.host}:{target.port}",
                token=token,
                ca_file=access.ca_file,
                timeout=seconds,
                insecure_http=access.insecure_http,
                address=target.address,
                max_bytes=_MOST_BYTES,
            )

        return connect

    def _found(self) -> list[ScrapeTarget]:
        found = list(expanded(self._given()))
        if not found:
            reason = "there are no targets"
            raise misuse(reason)
        if len(found) > _MOST_TARGETS:
            reason = f"there are {len(found):,} targets; the limit is {_MOST_TARGETS:,}"
            raise misuse(reason)
        return found

    def _given(self) -> Iterator[ScrapeTarget]:
        scheme, access = self.scheme, self.access
        for text in self.targets:
            for target in filter(str.strip, text.split(",")):
                yield parsed(target, scheme=scheme)
        for path in self.files:
            yield from _from_file(path, scheme=scheme)
        for url in self.urls:
            document = _fetched(url, access.ca_file, access.timeout)
            yield from from_groups(document, "--http-sd", scheme=scheme)


SIDECARS = collected(Sidecars)


def _of_this_host(*, stacks: bool, past: bool) -> JobHost:
    from jaxmon.cli.workers import directory_of
    from jaxmon.facts.host import host
    from jaxmon_exporter.ranks import Ranks

    ranks = Ranks(directory_of(None, past=past), list[BaseException]().append)
    try:
        return host("this host", ranks.read(stacks=stacks)).replace(asked=time.time())
    finally:
        ranks.close()


def _asked(target: ScrapeTarget, session: Session, *, stacks: bool = False) -> JobHost:
    from jaxmon.facts.host import host
    from jaxmon.host.formats import json_text

    began, wall = time.monotonic(), time.time()
    response = session.get("/job", {"stacks": "1"} if stacks else None)
    taken = time.monotonic() - began
    if response.status == 404:  # noqa: PLR2004 - no such page
        msg = "it serves no ranks; start it with --peer-access"
        raise ValueError(msg)
    if response.status != 200:  # noqa: PLR2004 - OK
        msg = f"it returned HTTP status {response.status}"
        raise ValueError(msg)
    answer = host(target.name, json_text.parse(response.body, odd_numbers=True))
    # It was made at some time in between.
    return answer.replace(asked=wall + taken / 2, within=taken / 2)
