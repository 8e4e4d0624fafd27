"""Who gets a page and who does not: TLS, certificates, and floods of clients."""

import datetime as dt
import http.client
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest
import trustme

from jaxmon.errors import WebConfigError
from tests.helpers.processes import until
from tests.helpers.servers import CLIENTS, PAGE, TLS, GuardedSite


@pytest.fixture
def site(tmp_path: Path) -> Iterator[GuardedSite]:
    with ExitStack() as stack:
        yield GuardedSite(tmp_path, stack)


def test_a_trusted_client_gets_the_page(site: GuardedSite) -> None:
    """With TLS only, every client that trusts the server is served."""
    site.certify()
    site.serve(TLS)
    assert site.get(context=site.trust())[:2] == (200, PAGE)


def test_a_plain_request_to_a_tls_port_gets_nothing(site: GuardedSite) -> None:
    """Nothing of a page is sent without TLS."""
    site.certify()
    site.serve(TLS)
    with pytest.raises((http.client.HTTPException, OSError)):
        site.get()
    assert site.get(context=site.trust())[0] == 200


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_version_below_the_least_is_refused(site, version):
    """With TLS 1.3 as the least, only clients that speak it get in."""
    site.certify()
    site.serve(TLS + "  min_version: TLS13\n")
    context = site.trust()
    context.minimum_version = context.maximum_version = version
    if version == ssl.TLSVersion.TLSv1_3:
        assert site.get(context=context)[0] == 200
    else:
        with pytest.raises(ssl.SSLError):
            site.get(context=context)


@pytest.fixture
def clients(site: GuardedSite) -> Callable[..., ssl.SSLContext]:
    """Return a function that makes the context of a client with a certificate."""
    site.certify()
    own = trustme.CA()
    own.cert_pem.write_to_path(str(site.directory / "ca.pem"))

    def client(signed_by: trustme.CA | None = None, **options: Any) -> ssl.SSLContext:
        context = site.trust()
        (signed_by or own).issue_cert("client.example", **options).configure_cert(
            context
        )
        return context

    return client


def test_a_client_certificate_lets_in(site, clients):
    """A certificate signed by the right authority is enough."""
    site.serve(CLIENTS)
    assert site.get(context=clients())[0] == 200


def refused(site: GuardedSite, context: ssl.SSLContext) -> None:
    # With TLS 1.3 a client learns of it when it reads.
    with pytest.raises((ssl.SSLError, OSError, http.client.HTTPException)):
        site.get(context=context)


def test_no_certificate_and_a_wrong_one_do_not(
    site: GuardedSite, clients: Callable[..., ssl.SSLContext]
) -> None:
    """Without a valid certificate there is no page."""
    site.serve(CLIENTS)
    long_ago = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)

    refused(site, site.trust())
    refused(site, clients(trustme.CA()))
    refused(site, clients(not_before=long_ago, not_after=long_ago.replace(month=2)))
    assert site.get(context=clients())[0] == 200


@pytest.mark.parametrize(("name", "served"), [("client.example", True), ("x.y", False)])
def test_only_certain_names_may_be_let_in(site, clients, name, served):
    """A certificate of the right authority must also carry one of the names."""
    site.serve(CLIENTS + f"  client_allowed_sans: [{name}]\n")
    if served:
        assert site.get(context=clients())[0] == 200
    else:
        refused(site, clients())


def test_a_renewed_certificate_is_served_at_once(site: GuardedSite) -> None:
    """The next connection gets the new certificate; nothing is restarted."""
    site.certify()
    site.serve(TLS)

    def serial() -> Any:
        context = site.trust()
        with (
            socket.create_connection(("localhost", site.port), 10) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as tls,
        ):
            certificate = tls.getpeercert()
            assert certificate is not None
            return certificate["serialNumber"]

    before = serial()
    site.certify()
    assert serial() != before
    # Half a renewal, or a broken one, leaves what was in force.
    after = serial()
    (site.directory / "cert.pem").write_text("broken")
    assert serial() == after


def test_a_certificate_that_comes_after_its_configuration(
    site: GuardedSite, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that is asked for is waited for."""
    site.certify()
    site.serve(TLS)
    site.path.write_text(TLS.replace("cert.pem", "new.pem"))
    for _ in range(2):
        assert site.get(context=site.trust())[0] == 200
    assert len(caplog.records) == 1
    assert "cert_file: cannot be read: No such file" in caplog.text

    site.directory.joinpath("cert.pem").rename(site.directory / "new.pem")
    assert site.get(context=site.trust())[0] == 200
    assert site.gate.family().samples == [("jaxmon_web_config_success", 1)]


@pytest.mark.parametrize(
    "path",
    ["/../../etc/passwd", "/metrics/../secret", "/%2e%2e/%2e%2e/etc/passwd", "//etc"],
)
def test_no_path_leads_to_a_file(site: GuardedSite, path: str) -> None:
    """Only the pages exist."""
    site.serve("")
    status, body, _ = site.get(path)
    assert status == 404
    assert b"root:" not in body


def test_slow_clients_do_not_keep_others_out(site: GuardedSite) -> None:
    """Two hundred of them cost no other a response."""
    site.certify()
    site.serve(TLS, read_timeout=2)
    with ExitStack() as stack:
        for number in range(200):
            slow = stack.enter_context(socket.socket())
            slow.settimeout(60)
            slow.connect(("127.0.0.1", site.port))
            if number % 2:
                slow.sendall(b"\x16\x03\x01")
        served = until(lambda: served_with(site), "a page beside slow clients")
    assert served


def served_with(site: GuardedSite) -> bool:
    try:
        return site.get(context=site.trust())[0] == 200
    except OSError:
        return False


def test_a_thousand_connections_are_served_or_refused(site: GuardedSite) -> None:
    """None hangs, memory stays where it was, and afterwards all is well."""
    site.serve("")
    me = psutil.Process(os.getpid())
    outcomes: list[str] = []

    def ask() -> None:
        try:
            outcomes.append(str(site.get()[0]))
        except (OSError, http.client.HTTPException) as error:
            outcomes.append(type(error).__name__)

    for _ in range(2):
        before = me.memory_info().rss
        threads = [threading.Thread(target=ask) for _ in range(500)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(outcomes) == 1000
    assert outcomes.count("200") > 0
    assert set(outcomes) <= {"200", "503", "ConnectionResetError", "RemoteDisconnected"}
    assert me.memory_info().rss - before < 20 << 20
    assert site.get()[:2] == (200, PAGE)


def test_a_configuration_that_cannot_be_used_is_refused_at_start(site):
    """Nothing is served unprotected by mistake."""
    with pytest.raises(WebConfigError, match="TLS cannot be set up"):
        site.serve(TLS)
