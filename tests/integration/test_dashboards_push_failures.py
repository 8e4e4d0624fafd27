"""
`jaxmon dashboards push` when requests, tokens, addresses or proxies fail.

What holds after every push is checked here, too: see `tests.push_site.check_site`.
"""

from __future__ import annotations

import random
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.grafana import TOKEN, VIEWER, Quirks
from tests.fakes.http import Reply
from tests.fakes.proxy import Proxy
from tests.push_site import DEBUG, ONCALL, Site
from tests.support import Result, require_program, run_python


# Things go wrong.


@pytest.mark.parametrize(
    "fault",
    [
        {"reply": Reply(429, {"message": "slow"}, {"Retry-After": "0"})},
        {"reply": Reply(502, "<html>bad gateway</html>", type="text/html")},
        {"reply": Reply(503, "", type="text/plain")},
        {"reply": Reply(504, {"message": "late"})},
        {"drop": True},
        {"cut": True},
        {"drop": True, "handled": True},
    ],
    ids=["429", "502", "503", "504", "drop", "cut", "lost"],
)
@pytest.mark.parametrize(
    "where",
    ["/api/health", "GET /api/folders", "/api/search", "GET /api/dashboards/uid",
     "POST /api/folders", "POST /api/dashboards/db"],
)  # fmt: skip
def test_a_short_failure_is_waited_out(site, where, fault, monkeypatch):
    """
    One failure of any request, before or after it did its work, costs nothing.
    """
    monkeypatch.setattr("jaxmon.grafana.http._backoff", lambda _: 0.01)
    if where == "/api/search":
        site.grafana.folders["jaxmon"] = "jaxmon"
    site.grafana.fault(where, **fault)
    assert site.push().code == 0
    assert site.grafana.faults[0].times == 0
    assert [len(row.versions) for row in site.grafana.rows.values()] == [1, 1]


@pytest.mark.parametrize("cut", [True, False])
def test_a_lost_answer_to_an_update(pushed, cut, monkeypatch):
    """
    A save that arrived is not made twice; the second attempt meets the lock.
    """
    monkeypatch.setattr("jaxmon.grafana.http._backoff", lambda _: 0.01)
    pushed.write({**ONCALL, "refresh": "1m"})
    how = {"cut": True} if cut else {"drop": True}
    pushed.grafana.fault("POST /api/dashboards/db", handled=True, **how)
    done = pushed.push()
    assert done.code == 0
    assert "was pushed just now" in done.out
    assert len(pushed.grafana.rows["jaxmon-oncall"].versions) == 2


def test_a_server_that_stays_busy(site, monkeypatch):
    """
    After four attempts it is given up, with what the server said.
    """
    monkeypatch.setattr("jaxmon.grafana.http._backoff", lambda _: 0.01)
    site.grafana.fault("health", reply=Reply(503, {"message": "starting"}), times=99)
    done = site.push()
    assert done.code == 1
    assert "is busy: 503 starting; try again later" in done.err
    assert len(site.grafana.seen) == 4


def test_a_server_that_asks_for_an_hour(site):
    """
    A wait that is too long is not begun.
    """
    reply = Reply(429, {"message": "quota"}, {"Retry-After": "3600"})
    site.grafana.fault("POST /api/dashboards/db", reply=reply)
    done = site.push()
    assert done.code == 4
    assert "asks to wait 3600 s" in done.out
    assert "1 failed, 1 created." in done.out


def test_a_long_wait_is_announced(site, monkeypatch):
    """
    Who waits is told for how long.
    """
    waits: list[float] = []
    monkeypatch.setattr("jaxmon.cli.connection.time.sleep", waits.append)
    reply = Reply(429, {"message": "quota"}, {"Retry-After": "20"})
    site.grafana.fault("health", reply=reply)
    done = site.push().ok()
    assert waits == [20.0]
    assert done.err == "Grafana is busy; trying again in 20 s\n"


def test_one_that_fails_does_not_stop_the_others(site):
    """
    Grafana's reason is shown and the exit code is 4.
    """
    site.write({**DEBUG, "refresh": "1s"})
    done = site.push()
    assert done.code == 4
    assert "Dashboard refresh interval is too low" in " ".join(done.out.split())
    assert "1 failed, 1 created." in done.out


def test_all_that_fail(site):
    """
    Where every dashboard fails, the exit code is 1.
    """
    site.grafana.fault(
        "POST /api/dashboards", reply=Reply(500, {"message": "x"}), times=2
    )
    assert site.push().code == 1


def test_one_that_cannot_be_looked_at(site):
    """
    A dashboard that Grafana cannot show fails alone.
    """
    reply = Reply(500, {"message": "dashboard data is invalid"})
    site.grafana.fault("GET /api/dashboards/uid/jaxmon-debug", reply=reply)
    assert site.outcomes() == (
        4,
        {"jaxmon-debug": "failed", "jaxmon-oncall": "created"},
    )


ODD: list[Any] = [None, [], {}, "text", 7, [1], [{}], {"dashboard": {}, "meta": {}},
       {"dashboard": {"version": "x"}, "meta": {"version": None}}, {"version": []},
       {"dashboard": {"version": 1, "tags": 7}, "meta": {"folderUid": 7}},
       {"message": {}, "versions": {"a": 1}}]  # fmt: skip


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
@pytest.mark.parametrize("status", [200, 202, 404, 412, 500])
def test_answers_that_make_no_sense(pushed, odd, status):
    """
    Whatever JSON a server sends with whatever status, a push ends with a message and
    an exit code, and replaces nothing that it could not recognise.
    """
    pushed.write({**ONCALL, "refresh": "1m"})
    for match in ("versions", "uid/jaxmon-oncall$", "search", "folders", "POST", "api"):
        pushed.grafana.faults.clear()
        pushed.grafana.fault(match, reply=Reply(status, odd), times=3)
        done = pushed.push()
        assert done.code in (0, 1, 3, 4)
        assert "Traceback" not in done.err


@pytest.mark.parametrize("uid", ["", "a b", "../x", "ü", "x" * 41])
def test_a_folder_that_cannot_be(site, uid):
    """
    A folder's uid that Grafana would not accept is a usage error.
    """
    assert site.push("--folder", uid).code == 2
    assert site.grafana.seen == []


# Tokens.


def test_an_unknown_token(site):
    """
    A token that Grafana does not know ends the push with advice.
    """
    site.grafana.tokens.clear()
    done = site.push()
    assert done.code == 1
    assert "Grafana does not know the token (401 Invalid API key)" in done.err


def test_a_token_that_may_only_read(site):
    """
    Grafana's words on the missing permission are shown, and the role to give.
    """
    done = site.push(GRAFANA_TOKEN=VIEWER)
    assert done.code == 1
    assert "needs the role Editor" in done.err
    assert "Permissions needed" in done.err


def test_a_server_that_repeats_the_token(site):
    """
    The token is cut out of what others write.
    """
    reply = Reply(400, {"message": f"Bearer {TOKEN} is not enough\x1b[2J"})
    site.grafana.fault("POST /api/dashboards/db", reply=reply, times=2)
    done = site.push()
    assert "Bearer [token] is not enough?[2J" in " ".join(done.out.split())


def test_a_token_from_a_file(site):
    """
    `--token-file` wins over the variable, and its last newline does not count.
    """
    path = site.directory / "token"
    path.write_text(f"{TOKEN}\n")
    assert site.push("--token-file", str(path), GRAFANA_TOKEN=VIEWER).code == 0


@pytest.mark.parametrize("token", ["", "  \n", None])
def test_no_token(site, token):
    """
    Without a token nothing is asked, and both places for one are named.
    """
    done = site.push(GRAFANA_TOKEN=token)
    assert done.code == 1
    assert "no token; set GRAFANA_TOKEN or give --token-file" in done.err
    assert site.grafana.seen == []


@pytest.mark.parametrize("text", ["", "two\nlines", "ключ", "\x00\x01"])
def test_a_file_without_a_usable_token(site, text):
    """
    A token file with something else is refused without showing it.
    """
    path = site.directory / "token"
    path.write_text(text)
    done = site.push("--token-file", str(path))
    assert done.code == 1
    assert "token" in done.err
    assert not text or text not in done.err
    assert site.grafana.seen == []


def test_there_is_no_option_for_the_token(site):
    """
    Command lines are visible to other users.
    """
    done = site.push("--token", "x")
    assert done.code == 2
    assert site.grafana.seen == []


# Addresses, certificates, proxies.


@pytest.mark.parametrize("slash", ["", "/"])
def test_a_grafana_under_a_path(make_site, slash):
    """
    A sub-path is kept, with or without a slash at its end.
    """
    site = make_site(path="/tools/grafana")
    site.url += slash
    done = site.push().ok()
    assert f"{site.grafana.url}/d/jaxmon-oncall/a-slug" in done.out
    assert all(one.target.startswith("/tools/grafana/api") for one in site.grafana.seen)


def test_a_missing_path_is_explained(make_site):
    """
    A page that is not Grafana's API leads to advice about the address.
    """
    site = make_site(path="/grafana")
    site.url = site.url.removesuffix("/grafana")
    done = site.push()
    assert done.code == 1
    assert "answered 404 with something that is not JSON" in done.err
    site.url = site.grafana.url


def test_a_login_page_is_explained(site):
    """
    A proxy that answers 200 with a page to log in is not taken for Grafana.
    """
    page = Reply(200, "<html>Log in</html>", type="text/html")
    site.grafana.fault("health", reply=page)
    done = site.push()
    assert done.code == 1
    assert "not JSON" in done.err


def test_a_redirect_is_not_followed(make_site):
    """
    The token goes to the given address only; the other one is named.
    """
    site, other = make_site(), make_site()
    place = f"{other.grafana.url}/login?next=secret"
    reply = Reply(302, "", {"Location": place}, type="text/html")
    site.grafana.fault("health", reply=reply)
    done = site.push()
    assert done.code == 1
    assert f"redirects to {other.grafana.url}/login; give Grafana's own" in done.err
    assert other.grafana.seen == []


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("grafana.example.com", "give http(s)://host/path"),
        ("ftp://grafana.example.com", "give http(s)://host/path"),
        ("https://example.com/a b", "give http(s)://host/path"),
        ("https://exämple.com/", "give http(s)://host/path"),
        ("http://[::1", "give http(s)://host/path"),
        ("https://example.com:port/", "give http(s)://host/path"),
        ("https://admin:hunter2@example.com", "is not used; give a token"),
        ("http://grafana.example.com", "would get the token in the clear"),
    ],
)
def test_an_address_that_cannot_be_used(site, url, message):
    """
    It is refused before anything is sent, with what is allowed.
    """
    done = site.push("--url", url)
    assert done.code == 1
    assert message in done.err
    assert "hunter2" not in done.err
    site.grafana.seen.clear()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """
    Return a file with a key and a certificate that no system trusts.
    """
    require_program("openssl")
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
         "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
         "-subj", "/CN=grafana.test", "-addext",
         "subjectAltName=DNS:grafana.test,IP:127.0.0.1",
         "-keyout", path, "-out", f"{path}.crt"],
        check=True, capture_output=True, timeout=30,
    )  # fmt: skip
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path


@pytest.fixture
def tls_site(make_site: Callable[..., Site], certificate: Path) -> Site:
    """
    Return a site that is served over https.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    site = make_site(tls=context)
    site.options = ("--ca-file", f"{certificate}.crt")
    return site


def test_a_private_authority(tls_site):
    """
    With `--ca-file` its certificate is trusted.
    """
    assert tls_site.push().code == 0


def test_a_certificate_that_nobody_vouches_for(tls_site, monkeypatch):
    """
    Without it the push ends before the token is sent; asking again would not help.
    """
    waits: list[float] = []
    monkeypatch.setattr("jaxmon.cli.connection.time.sleep", waits.append)
    options, tls_site.options = tls_site.options, ()
    done = tls_site.push()
    assert done.code == 1
    assert "is not trusted" in done.err
    assert "--ca-file" in done.err
    assert tls_site.grafana.seen == []
    assert waits == []
    tls_site.options = options


def test_a_file_without_certificates(tls_site):
    """
    It is named as such.
    """
    path = tls_site.directory / "empty.pem"
    path.touch()
    done = tls_site.push("--ca-file", str(path))
    assert done.code == 1
    assert f"cannot use the certificates in {path}" in done.err


def in_process_of_its_own(site: Site, *options: str, **environ: str) -> Result:
    """
    Push from a subprocess, as a user does, with proxies in its environment.
    """
    done = run_python(
        "-m", "jaxmon", "dashboards", "push", *options,
        str(site.directory / "dashboards"),
        env={"GRAFANA_TOKEN": TOKEN, "no_proxy": "", **environ},
    )  # fmt: skip
    site.printed += [done.out, done.err]
    return done


def test_a_proxy_for_https(tls_site):
    """
    HTTPS_PROXY is asked to connect and never sees the token.
    """
    with Proxy(tls_site.grafana.port) as proxy:
        in_process_of_its_own(
            tls_site, *tls_site.options, "--url", "https://grafana.test/",
            HTTPS_PROXY=proxy.url,
        ).ok()  # fmt: skip
    assert len(tls_site.grafana.rows) == 2
    assert proxy.heads
    assert all(one.startswith("CONNECT grafana.test:443 ") for one in proxy.heads)
    assert TOKEN not in "".join(proxy.heads)


def test_a_proxy_for_http(site):
    """
    HTTP_PROXY carries plain requests, which need `--insecure-http`.
    """
    with Proxy(site.grafana.port) as proxy:
        in_process_of_its_own(
            site, "--insecure-http", "--url", "http://grafana.test",
            HTTP_PROXY=proxy.url,
        ).ok()  # fmt: skip
    assert len(site.grafana.rows) == 2
    assert proxy.heads[0].startswith("GET http://grafana.test/api/health ")


@pytest.mark.parametrize("variables", [{}, {"no_proxy": "127.0.0.1"}])
def test_this_host_needs_no_proxy(site, variables):
    """
    A Grafana on a loopback address is reached directly, whatever the proxies.
    """
    with Proxy(site.grafana.port) as proxy:
        in_process_of_its_own(
            site, "--url", site.url, HTTP_PROXY=proxy.url, **variables
        ).ok()
    assert proxy.heads == []


def test_no_proxy_is_honoured(tls_site):
    """
    A name in NO_PROXY is connected to directly, here in vain.
    """
    with Proxy(tls_site.grafana.port) as proxy:
        done = in_process_of_its_own(
            tls_site, *tls_site.options, "--url", "https://grafana.test",
            HTTPS_PROXY=proxy.url, no_proxy="grafana.test",
        )  # fmt: skip
    assert done.code == 1
    assert "no answer from https://grafana.test" in done.err
    assert proxy.heads == []


def test_a_proxy_that_refuses(tls_site):
    """
    Its refusal is shown.
    """
    with Proxy(tls_site.grafana.port, refuse="403 Forbidden") as proxy:
        done = in_process_of_its_own(
            tls_site, *tls_site.options, "--url", "https://grafana.test",
            HTTPS_PROXY=proxy.url,
        )  # fmt: skip
    assert done.code == 1
    assert "Tunnel connection failed: 403 Forbidden" in done.err


@pytest.mark.parametrize("seed", range(10))
def test_any_history(make_site, seed, monkeypatch):
    """
    Pushes, edits, moves, rollbacks and failures in any order: what the end of every
    test asserts holds, and a push after quiet has returned does not fail.
    """
    monkeypatch.setattr("jaxmon.grafana.http._backoff", lambda _: 0.0)
    rng = random.Random(seed)  # noqa: S311 - repeatable, nothing to guard
    site = make_site(quirks=Quirks(list_hides_first_message=rng.random() < 0.5))
    grafana = site.grafana

    def edit():
        uid = rng.choice(list(grafana.rows))
        grafana.edit(uid, refresh=f"{rng.randint(5, 60)}s", author="alice")

    def fail():
        where = rng.choice(["^GET", "^POST", "versions", "search", "folders"])
        hows: list[dict[str, Any]] = [
            {"drop": True},
            {"drop": True, "handled": True},
            {"cut": True},
            {"reply": Reply(503, {}), "times": rng.randint(1, 6)},
            {"reply": Reply(500, {})},
            {"before": edit if grafana.rows else list},
        ]
        grafana.fault(where, **rng.choice(hows))

    actions = [
        site.push,
        lambda: site.push("--force"),
        lambda: site.push("--dry-run"),
        lambda: site.write({**ONCALL, "refresh": f"{rng.randint(1, 9)}m"}),
        lambda: site.write({**DEBUG, "time": {"from": f"now-{rng.randint(1, 9)}h"}}),
        fail,
    ]
    with_rows = [
        edit,
        lambda: grafana.restore(rng.choice(list(grafana.rows)), 1),
        lambda: grafana.move(
            rng.choice(list(grafana.rows)), rng.choice(["", "jaxmon"])
        ),
    ]
    for _ in range(15):
        done = rng.choice(actions + (with_rows if grafana.rows else []))()
        assert done is None or done.code in (0, 1, 3, 4, 5)
    grafana.faults.clear()
    assert site.push().code in (0, 3)
