"""
Targets in the formats of Prometheus's discovery: lists of ``host:port``, files
(``file_sd``), addresses that return the same (``http_sd``), and names in DNS with one
address for each host.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple

from jaxmon.errors import ConfigFileError, JaxmonError
from jaxmon.host.files.bounded import read_text
from jaxmon.host.formats import json_text
from jaxmon.host.http.redaction import Secrets
from jaxmon.host.http.route import Route, trusted
from jaxmon.host.http.stream import Bounds
from jaxmon.host.http.urls import parts_of, secrets_of, shown, target_of


MOST_TARGETS = 10_000

_MOST_BYTES = 16 << 20
# `[::1]:9467` as well.
_TARGET = r"(?:(https?)://)?([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?/?"
_SCHEMES = ("http", "https")


class DiscoveryError(JaxmonError):
    """Targets that cannot be read; the message says where and why."""


class ScrapeTarget(NamedTuple):
    """
    A server.

    Attributes:
        scheme: ``http`` or ``https``.
        host: name or address.
        port: of TCP.
        address: where to connect, if *host* has several addresses; else empty.
    """

    scheme: str
    host: str
    port: int
    address: str = ""

    @property
    def name(self) -> str:
        """Host and port, as people write them, and the address if there are several."""
        of = f" ({self.address})" if self.address else ""
        return f"{self.host}:{self.port}{of}"


def parsed(text: str, *, scheme: str, port: int) -> ScrapeTarget:
    """
    Return the target in *text*: ``host:port``, with *port* if it has none.

    Raises:
        DiscoveryError: it is not one.
    """
    match = re.fullmatch(_TARGET, text.strip())
    number = port if match is None or match[3] is None else int(match[3])
    if match is None or not 0 < number < 1 << 16:
        msg = f"{text[:80]!r} is not a target; give HOST:PORT"
        raise DiscoveryError(msg)
    return ScrapeTarget(match[1] or scheme, match[2], number)


def from_file(path: Path, *, scheme: str, port: int) -> list[ScrapeTarget]:
    """
    Return the targets in a file of ``file_sd``, in JSON or YAML.

    Raises:
        DiscoveryError: it cannot be read, or has something else.
    """
    try:
        text = read_text(path, most=_MOST_BYTES, pipe=True)
        document = _loaded(text, yaml=path.suffix in {".yml", ".yaml"})
    except (ConfigFileError, ValueError) as error:
        msg = f"{path}: {error}"
        raise DiscoveryError(msg) from None
    return from_groups(document, str(path), scheme=scheme, port=port)


def fetched(url: str, ca_file: Path | None, seconds: float) -> Any:
    """
    Return the JSON at *url*, as ``http_sd`` has it.

    Args:
        url: may hold a user and a password, and a query.
        ca_file: CA certificates to trust instead of the system's.
        seconds: for all of it.

    Raises:
        DiscoveryError: there is none.
    """
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
        msg = f"no targets from {shown(parts)}: {secrets.redacted(str(error))}"
        raise DiscoveryError(msg) from None


def from_groups(
    document: Any, where: str, *, scheme: str, port: int
) -> list[ScrapeTarget]:
    """
    Return the targets in *document*, a list of groups with ``targets``.

    Args:
        document: JSON types.
        where: it is from, for errors.
        scheme: of groups without the label ``__scheme__``.
        port: of targets without one.

    Raises:
        DiscoveryError: it is something else.
    """
    if not isinstance(document, list):
        msg = f"{where}: not a list of groups of targets, as in Prometheus's file_sd"
        raise DiscoveryError(msg)
    found = []
    for group in document:
        targets = group.get("targets") if isinstance(group, Mapping) else None
        if not isinstance(targets, list):
            msg = f"{where}: a group without a list of targets"
            raise DiscoveryError(msg)
        labels = group.get("labels")
        labelled = labels.get("__scheme__") if isinstance(labels, Mapping) else None
        wanted = labelled if labelled in _SCHEMES else scheme
        found += [parsed(str(one), scheme=wanted, port=port) for one in targets]
    return found


def expanded(
    targets: Iterable[ScrapeTarget],
    resolve: Callable[..., Iterable[Any]] = socket.getaddrinfo,
) -> Iterator[ScrapeTarget]:
    """
    Yield each of *targets* once, and one for each address of a name with several, of
    IPv4 if it has both kinds. A name that is unknown is left as it is.

    Args:
        targets: to ask.
        resolve: looks up a name.
    """
    for one in dict.fromkeys(targets):
        found = _addresses(one, resolve)
        if len(found) > 1:
            yield from (one._replace(address=address) for address in found)
        else:
            yield one


def _addresses(
    target: ScrapeTarget, resolve: Callable[..., Iterable[Any]]
) -> list[str]:
    host = target.host.strip("[]")
    try:
        found = list(resolve(host, target.port, type=socket.SOCK_STREAM))
    except (OSError, UnicodeError):
        return []
    families = {family for family, *_ in found}
    wanted = socket.AF_INET if socket.AF_INET in families else socket.AF_INET6
    return list(
        dict.fromkeys(str(at[0]) for family, *_, at in found if family == wanted)
    )


def _loaded(text: str, *, yaml: bool) -> Any:
    if not yaml:
        return json_text.parse(text)
    from jaxmon.host.formats import yaml_file

    return _plain(yaml_file.compose(text))


def _plain(node: Any) -> Any:
    """Return the *node* of a YAML document in JSON types; all scalars are texts."""
    import yaml

    if isinstance(node, yaml.SequenceNode):
        return [_plain(one) for one in node.value]
    if isinstance(node, yaml.MappingNode):
        return {str(key.value): _plain(value) for key, value in node.value}
    return None if node is None else str(node.value)
