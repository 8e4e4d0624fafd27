"""Pushing with tokens, to addresses of many kinds."""

import pytest

from tests.fakes.grafana_rows import TOKEN, VIEWER
from tests.fakes.http import Reply
from tests.helpers.dashboards import MANY, SAVE


# They are the same for both models of dashboards.
pytestmark = MANY


@pytest.mark.parametrize("uid", ["", "a b", "../x", "ü", "x" * 41])
def test_a_folder_that_cannot_be(site, uid):
    """A folder's uid that Grafana would not accept is a usage error."""
    assert site.push("--folder", uid).code == 2
    assert site.grafana.seen == []


# Tokens.


def test_an_unknown_token(site):
    """A token that Grafana does not know ends the push with advice."""
    site.grafana.tokens.clear()
    done = site.push()
    assert done.code == 1
    assert "Grafana rejected the token (401 Invalid API key)" in done.err


def test_a_token_that_may_only_read(site):
    """Grafana's words on the missing permission are shown, and the role to give."""
    done = site.push(GRAFANA_TOKEN=VIEWER)
    assert done.code == 1
    assert "needs the Editor role" in done.err
    assert "Permissions needed" in done.err


def test_a_server_that_repeats_the_token(site):
    """The token is cut out of what others write."""
    reply = Reply(400, {"message": f"Bearer {TOKEN} is not enough\x1b[2J"})
    site.grafana.fault(SAVE, reply=reply, times=2)
    done = site.push()
    assert "Bearer [token] is not enough\\x1b[2J" in " ".join(done.out.split())


def test_a_token_from_a_file(site):
    """`--token-file` wins over the variable, and its last newline does not count."""
    path = site.directory / "token"
    path.write_text(f"{TOKEN}\n")
    assert site.push("--token-file", str(path), GRAFANA_TOKEN=VIEWER).code == 0


@pytest.mark.parametrize("token", ["", "  \n", None])
def test_no_token(site, token):
    """Without a token nothing is asked, and both places for one are named."""
    done = site.push(GRAFANA_TOKEN=token)
    assert done.code == 1
    assert "no token; set GRAFANA_TOKEN or give --token-file" in done.err
    assert site.grafana.seen == []


@pytest.mark.parametrize("text", ["", "two\nlines", "ключ", "\x00\x01"])
def test_a_file_without_a_usable_token(site, text):
    """A token file with something else is refused without showing it."""
    path = site.directory / "token"
    path.write_text(text)
    done = site.push("--token-file", str(path))
    assert done.code == 1
    assert "token" in done.err
    assert not text or text not in done.err
    assert site.grafana.seen == []


def test_there_is_no_option_for_the_token(site):
    """Command lines are visible to other users."""
    done = site.push("--token", "x")
    assert done.code == 2
    assert site.grafana.seen == []


# Addresses, certificates, proxies.


@pytest.mark.parametrize("slash", ["", "/"])
def test_a_grafana_under_a_path(make_site, slash):
    """A sub-path is kept, with or without a slash at its end."""
    site = make_site(path="/tools/grafana")
    site.url += slash
    done = site.push().ok()
    assert f"{site.grafana.url}/d/jaxmon-oncall" in done.out
    assert all(one.target.startswith("/tools/grafana/api") for one in site.grafana.seen)


def test_a_missing_path_is_explained(make_site):
    """A page that is not Grafana's API leads to advice about the address."""
    site = make_site(path="/grafana")
    site.url = site.url.removesuffix("/grafana")
    done = site.push()
    assert done.code == 1
    assert "returned 404 with something that is not JSON" in done.err
    site.url = site.grafana.url


def test_a_login_page_is_explained(site):
    """A proxy that answers 200 with a page to log in is not taken for Grafana."""
    page = Reply(200, "<html>Log in</html>", type="text/html")
    site.grafana.fault("health", reply=page)
    done = site.push()
    assert done.code == 1
    assert "not JSON" in done.err


def test_a_redirect_is_not_followed(make_site):
    """The token goes to the given address only; the other one is named."""
    site, other = make_site(), make_site()
    place = f"{other.grafana.url}/login?next=secret"
    reply = Reply(302, "", {"Location": place}, type="text/html")
    site.grafana.fault("health", reply=reply)
    done = site.push()
    assert done.code == 1
    assert f"redirects to {other.grafana.url}/login; use Grafana's own" in done.err
    assert other.grafana.seen == []


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("grafana.example.com", "give http(s)://HOST/PATH"),
        ("ftp://grafana.example.com", "give http(s)://HOST/PATH"),
        ("https://example.com/a b", "give http(s)://HOST/PATH"),
        ("https://exämple.com/", "give http(s)://HOST/PATH"),
        ("http://[::1", "give http(s)://HOST/PATH"),
        ("https://example.com:port/", "give http(s)://HOST/PATH"),
        ("https://admin:hunter2@example.com", "are not supported; use a token"),
        ("http://grafana.example.com", "the token would be sent to"),
    ],
)
def test_an_address_that_cannot_be_used(site, url, message):
    """It is refused before anything is sent, with what is allowed."""
    done = site.push("--url", url)
    assert done.code == (2 if "HOST" in message else 1)
    assert message in done.err
    assert "hunter2" not in done.err
    site.grafana.seen.clear()
