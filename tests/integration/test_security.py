"""
Who gets a page and who does not: TLS, certificates, passwords, and floods of clients.
"""

from __future__ import annotations

import base64
import datetime as dt
import http.client
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest
import trustme

from jaxmon.errors import CommandError, WebConfigError
from jaxmon.exposition.server import Response, Server
from jaxmon_exporter import gate
from jaxmon_exporter.gate import Gate
from tests.support import until


PAGE = b"the page\n"


def page(_: Any) -> Response:
    return Response(PAGE)


class Site:
    """
    A server behind a web configuration, and those who may sign certificates.
    """

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory = directory
        self.authority = trustme.CA()
        self.path = directory / "web.yml"
        self._stack = stack
        self.port = 0
        self.gate: Gate

    def certify(self, name: str = "localhost", **options: Any) -> None:
        """
        Write ``cert.pem`` and ``key.pem`` for the server.
        """
        issued = self.authority.issue_cert(name, **options)
        issued.private_key_pem.write_to_path(str(self.directory / "key.pem"))
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        (self.directory / "cert.pem").write_bytes(chain)

    def serve(self, config: str) -> None:
        self.path.write_text(config)
        self.gate = Gate(self.path)
        self._stack.callback(self.gate.close)
        server = Server(
            {"/metrics": page, "/-/healthy": page},
            max_connections=64,
            read_timeout=2,
        )
        self.port = server.listen_tcp("127.0.0.1", 0, gate=self.gate)
        server.start()
        self._stack.callback(server.stop)

    def trust(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        return context

    def get(
        self,
        path: str = "/metrics",
        *,
        context: ssl.SSLContext | None = None,
        user: tuple[str, str] | None = None,
        **headers: str,
    ) -> tuple[int, bytes, http.client.HTTPMessage]:
        if user is not None:
            encoded = base64.b64encode(":".join(user).encode()).decode()
            headers["Authorization"] = f"Basic {encoded}"
        connection = (
            http.client.HTTPConnection("localhost", self.port, timeout=20)
            if context is None
            else http.client.HTTPSConnection(
                "localhost", self.port, timeout=20, context=context
            )
        )
        with closing(connection):
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            return response.status, response.read(), response.headers


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(tmp_path, stack)


TLS = "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n"
CLIENTS = TLS + "  client_ca_file: ca.pem\n"


@pytest.fixture(scope="module")
def bcrypt() -> ModuleType:
    found: ModuleType = pytest.importorskip("bcrypt")
    return found


@pytest.fixture(scope="module")
def users(bcrypt: ModuleType) -> str:
    hashed = bcrypt.hashpw(b"right", bcrypt.gensalt(5)).decode()
    return f"basic_auth_users:\n  alice: {hashed}\n"


def test_a_trusted_client_gets_the_page(site: Site) -> None:
    """
    With TLS alone, whoever trusts the server is served.
    """
    site.certify()
    site.serve(TLS)
    assert site.get(context=site.trust())[:2] == (200, PAGE)


def test_a_plain_request_to_a_tls_port_gets_nothing(site: Site) -> None:
    """
    Nothing of a page is sent without TLS.
    """
    site.certify()
    site.serve(TLS)
    with pytest.raises((http.client.HTTPException, OSError)):
        site.get()
    assert site.get(context=site.trust())[0] == 200


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_version_below_the_least_is_refused(
    site: Site, version: ssl.TLSVersion
) -> None:
    """
    With TLS 1.3 as the least, only clients that speak it get in.
    """
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
def clients(site: Site) -> Callable[..., ssl.SSLContext]:
    """
    Return a function that makes the context of a client with a certificate.
    """
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


def test_a_client_certificate_lets_in(
    site: Site, clients: Callable[..., ssl.SSLContext]
) -> None:
    """
    A certificate signed by the right authority is enough.
    """
    site.serve(CLIENTS)
    assert site.get(context=clients())[0] == 200


def refused(site: Site, context: ssl.SSLContext) -> None:
    # With TLS 1.3 a client learns of it when it reads.
    with pytest.raises((ssl.SSLError, OSError, http.client.HTTPException)):
        site.get(context=context)


def test_no_certificate_and_a_wrong_one_do_not(
    site: Site, clients: Callable[..., ssl.SSLContext]
) -> None:
    """
    Without a certificate, with another authority's and with an expired one: no page.
    """
    site.serve(CLIENTS)
    long_ago = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)

    refused(site, site.trust())
    refused(site, clients(trustme.CA()))
    refused(site, clients(not_before=long_ago, not_after=long_ago.replace(month=2)))
    assert site.get(context=clients())[0] == 200


@pytest.mark.parametrize(("name", "served"), [("client.example", True), ("x.y", False)])
def test_only_certain_names_may_be_let_in(
    site: Site,
    clients: Callable[..., ssl.SSLContext],
    name: str,
    served: bool,  # noqa: FBT001
) -> None:
    """
    A certificate of the right authority must also carry one of the names.
    """
    site.serve(CLIENTS + f"  client_allowed_sans: [{name}]\n")
    if served:
        assert site.get(context=clients())[0] == 200
    else:
        refused(site, clients())


def test_a_renewed_certificate_is_served_at_once(site: Site) -> None:
    """
    The next connection gets the new certificate; nothing is restarted.
    """
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


def test_a_password_lets_in_and_a_wrong_one_does_not(site: Site, users: str) -> None:
    """
    Wrong passwords, unknown names, other schemes and no header at all get 401 and
    nothing of the page; the right one gets the page.
    """
    site.serve(users)

    assert site.get(user=("alice", "right"))[:2] == (200, PAGE)
    for bad in (("alice", "wrong"), ("bob", "right"), ("", ""), ("alice", "")):
        status, body, headers = site.get(user=bad)
        assert (status, headers["WWW-Authenticate"]) == (401, "Basic")
        assert PAGE not in body
    assert site.get()[0] == 401
    assert site.get(Authorization="Bearer right")[0] == 401
    assert site.get(Authorization="Basic !!!")[0] == 401
    assert site.get(user=("alice", "right" + "\0"))[0] == 401


def test_probes_need_no_password(site: Site, users: str) -> None:
    """
    A kubelet has none, and the page tells nothing.
    """
    site.serve(users)
    assert site.get("/-/healthy")[0] == 200


def test_a_slow_hash_is_paid_once(
    site: Site, users: str, bcrypt: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Right and wrong passwords are remembered, until the file changes them; an unknown
    name costs a hash as a known one does.
    """
    checked: list[bytes] = []
    check = bcrypt.checkpw

    def counting(password: bytes, hashed: bytes) -> bool:
        checked.append(password)
        return bool(check(password, hashed))

    monkeypatch.setattr(bcrypt, "checkpw", counting)
    site.serve(users)
    for _ in range(3):
        site.get(user=("alice", "right"))
        site.get(user=("alice", "wrong"))
        site.get(user=("nobody", "guess"))
    assert checked == [b"right", b"wrong", b"guess"]

    changed = bcrypt.hashpw(b"wrong", bcrypt.gensalt(4)).decode()
    site.path.write_text(f"basic_auth_users: {{alice: {changed}}}\n")
    assert site.get(user=("alice", "wrong"))[0] == 200
    assert site.get(user=("alice", "right"))[0] == 401


def test_guesses_do_not_make_a_right_password_slow(
    site: Site, users: str, bcrypt: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    However many wrong ones are remembered, who is known is not checked again.
    """
    checked: list[bytes] = []
    check = bcrypt.checkpw

    def counting(password: bytes, hashed: bytes) -> bool:
        checked.append(password)
        return password == b"right" and bool(check(password, hashed))

    monkeypatch.setattr(bcrypt, "checkpw", counting)
    site.serve(users)
    site.get(user=("alice", "right"))
    for number in range(2 * gate._REMEMBERED):
        assert site.get(user=("alice", f"guess {number}"))[0] == 401
    assert site.get(user=("alice", "right"))[0] == 200
    assert checked.count(b"right") == 1
    assert len(site.gate._known) <= gate._REMEMBERED


def test_a_change_that_cannot_be_used_changes_nothing(
    site: Site, users: str, caplog: pytest.LogCaptureFixture
) -> None:
    """
    A broken file, and one that switches TLS on, are logged once; passwords stay.
    """
    site.certify()
    site.serve(users)
    for text in ("basic_auth_users: {alice: right}", TLS + users):
        caplog.clear()
        site.path.write_text(text)
        assert site.get(user=("alice", "right"))[0] == 200
        assert site.get()[0] == 401
        assert len(caplog.records) == 1
        assert "what was in force stays" in caplog.text


def test_guesses_that_pile_up_are_turned_away(
    site: Site, users: str, bcrypt: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    While a bounded number of guesses waits, more get 401 at once; whoever is known
    is served meanwhile.
    """
    check, slow = bcrypt.checkpw, threading.Event()
    site.serve(users)
    assert site.get(user=("alice", "right"))[0] == 200

    def waiting(password: bytes, hashed: bytes) -> bool:
        slow.wait(20)
        return bool(check(password, hashed))

    monkeypatch.setattr(bcrypt, "checkpw", waiting)
    statuses: list[int] = []

    def guess(number: int) -> None:
        statuses.append(site.get(user=("alice", f"guess {number}"))[0])

    threads = [threading.Thread(target=guess, args=(n,)) for n in range(50)]
    for thread in threads:
        thread.start()
    until(lambda: len(statuses) >= 50 - gate._WAITING, "guesses to be turned away")
    assert site.get(user=("alice", "right"))[0] == 200
    slow.set()
    for thread in threads:
        thread.join()
    assert set(statuses) == {401}


def test_headers_are_on_every_response(site: Site, users: str) -> None:
    """
    Refusals carry them as well.
    """
    site.serve(users + "http_server_config: {headers: {X-Frame-Options: deny}}\n")
    for status, user in ((200, ("alice", "right")), (401, None)):
        found = site.get(user=user)
        assert (found[0], found[2]["X-Frame-Options"]) == (status, "deny")


@pytest.mark.parametrize(
    "path",
    ["/../../etc/passwd", "/metrics/../secret", "/%2e%2e/%2e%2e/etc/passwd", "//etc"],
)
def test_no_path_leads_to_a_file(site: Site, path: str) -> None:
    """
    Only the pages exist.
    """
    site.serve("")
    status, body, _ = site.get(path)
    assert status == 404
    assert b"root:" not in body


def test_slow_clients_do_not_keep_others_out(site: Site) -> None:
    """
    Two hundred clients that never finish their request, nor their handshake, cost
    nobody else a page.
    """
    site.certify()
    site.serve(TLS)
    with ExitStack() as stack:
        for number in range(200):
            slow = stack.enter_context(socket.socket())
            slow.settimeout(5)
            slow.connect(("127.0.0.1", site.port))
            if number % 2:
                slow.sendall(b"\x16\x03\x01")
        served = until(lambda: served_with(site), "a page beside slow clients")
    assert served


def served_with(site: Site) -> bool:
    try:
        return site.get(context=site.trust())[0] == 200
    except OSError:
        return False


def test_a_thousand_connections_are_served_or_refused(site: Site) -> None:
    """
    None hangs, memory stays where it was, and afterwards all is well.
    """
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


def test_passwords_need_bcrypt(
    site: Site, users: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Without the package the exporter does not start open: it says what to install.
    """
    monkeypatch.setitem(__import__("sys").modules, "bcrypt", None)
    with pytest.raises(CommandError, match=r"jaxmon\[web\]"):
        site.serve(users)


def test_a_configuration_that_cannot_be_used_is_refused_at_start(site: Site) -> None:
    """
    Nothing is served unprotected by mistake.
    """
    with pytest.raises(WebConfigError, match="TLS cannot be set up"):
        site.serve(TLS)
