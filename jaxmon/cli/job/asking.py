"""Asks the sidecars of a job, all at the same time and within one deadline."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from jaxmon.cli import output
from jaxmon.facts.host import JobHost, host
from jaxmon.formats import json_text
from jaxmon.monitoring.discovery import Target
from jaxmon.monitoring.session import MonitoringError, Session


_AT_ONCE = 64
_MAX_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Credentials:
    """
    How to connect to sidecars.

    Args:
        token: sent as a bearer token; ``""`` for none.
        user: of basic authentication; ``""`` for none.
        password: its password.
        ca_file: CA certificates to trust instead of the system's.
        insecure_http: allow sending secrets unencrypted to other hosts.
    """

    token: str = ""
    user: str = ""
    password: str = ""
    ca_file: Path | None = None
    insecure_http: bool = False

    def url(self, target: Target) -> str:
        """Return the address of *target*, with user and password if there are any."""
        user = f"{quote(self.user, safe='')}:{quote(self.password, safe='')}@"
        return (
            f"{target.scheme}://{user if self.user else ''}{target.host}:{target.port}"
        )


def ask(
    targets: Sequence[Target],
    credentials: Credentials,
    *,
    seconds: float,
    stacks: bool = False,
    timed: bool = False,
) -> list[JobHost]:
    """
    Return what the sidecars at *targets* report, within *seconds*, in their order; of
    one that does not answer, why.

    Args:
        targets: at least one.
        credentials: for all of them.
        seconds: for all of them together.
        stacks: whether to ask for the stacks of all threads.
        timed: ask each twice. The first response may wait for processes that do not
            respond; the second follows at once, and so its time is known well.
    """
    output.hide(credentials.token, credentials.password)
    end = time.monotonic() + seconds

    def one(target: Target) -> JobHost:
        left = end - time.monotonic()
        if left <= 0:
            return JobHost(target.name, "there was no time left to ask it")
        try:
            found = _asked(target, credentials, left, stacks=stacks)
        except (MonitoringError, ValueError) as error:
            return JobHost(target.name, str(error))
        left = end - time.monotonic()
        if timed and left > 0:
            with suppress(MonitoringError, ValueError):
                found = _asked(target, credentials, left)
        return found

    with ThreadPoolExecutor(min(_AT_ONCE, len(targets)), "jaxmon-job") as pool:
        return list(pool.map(one, targets))


def _asked(
    target: Target, credentials: Credentials, seconds: float, *, stacks: bool = False
) -> JobHost:
    session = Session(
        "sidecar",
        credentials.url(target),
        token=credentials.token,
        ca_file=credentials.ca_file,
        timeout=seconds,
        insecure_http=credentials.insecure_http,
        address=target.address,
        max_bytes=_MAX_BYTES,
    )
    began, wall = time.monotonic(), time.time()
    response = session.get("/job", {"stacks": "1"} if stacks else None)
    taken = time.monotonic() - began
    if response.status == 404:  # noqa: PLR2004 - no such page
        msg = "it serves no ranks; start it with --peer-access"
        raise ValueError(msg)
    if response.status != 200:  # noqa: PLR2004 - OK
        msg = f"it returned HTTP status {response.status}"
        raise ValueError(msg)
    found = host(target.name, json_text.parse(response.body, odd_numbers=True))
    # It was made at some time in between.
    return replace(found, asked=wall + taken / 2, within=taken / 2)
