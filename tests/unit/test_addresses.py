"""URLs as users write them; and commands that take one."""

import pytest
from click.testing import CliRunner

from jaxmon.cli.main import main
from jaxmon.host.http.urls import (
    authority,
    basic,
    is_loopback,
    parts_of,
    place_of,
    secrets_of,
    shown,
    target_of,
    without_user,
)


GOOD = (
    "http://h",
    "https://grafana.example.com./grafana/",
    "http://127.0.0.1:3000/?a=b#c",
    "http://[::1]:9400/metrics",
    "https://user:p%40ss@under_score/~x",
)

BAD = (
    "",
    " ",
    "h",
    "//h",
    "ftp://h",
    "file:///etc/passwd",
    "javascript:alert(1)",
    "http://",
    "http:///path",
    "http://:80",
    "http://[",
    "http://[::1",
    "http://[x]/",
    "http://h:99999",
    "http://h:0",
    "http://h:x",
    "http://a..b",
    "http://-h",
    "http://" + "a" * 64,
    "http://h/a b",
    "http://h/\n",
    "http://h/{{ .Labels }}",
    "http://h/\xe4",
    "http://h/\udcff",
    "http://h/\u202e",
)

COMMANDS = (
    ("dashboards", "build", "--runbook-base"),
    ("dashboards", "push", "--runbook-base"),
    ("dashboards", "push", "--url"),
    ("dashboards", "diff", "--url"),
    ("demo", "--webhook"),
    ("exporter", "--dcgm"),
)


@pytest.mark.parametrize("address", GOOD)
def test_an_address_has_parts(address: str) -> None:
    """Of HTTP or HTTPS, with a name or a number of a host, whatever follows."""
    assert parts_of(address).geturl() == address


@pytest.mark.parametrize("address", BAD)
def test_what_is_no_address_is_refused(address: str) -> None:
    """With what one looks like."""
    with pytest.raises(ValueError, match=r"is not a URL; give http\(s\)://HOST/PATH"):
        parts_of(address)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("http://me:secret@h/x", "http://h/x"),
        ("me:secret@h", "h"),
        ("http://me:secret@more@h", "http://h"),
        ("ftp://me:sec://ret@h", "ftp://h"),
        ("http://h", "http://h"),
    ],
)
def test_a_password_is_not_shown(address: str, shown: str) -> None:
    """Whatever else is wrong with the address."""
    assert without_user(address) == shown


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("address", ["nonsense", "http://me:secret@[", "http://\udcff"])
def test_a_command_refuses_it(monkeypatch, tmp_path, words, address):
    """As a wrong command line, with a line that names the option, and does nothing."""
    monkeypatch.chdir(tmp_path)

    done = CliRunner().invoke(main, [*words, address])

    assert done.exit_code == 2
    [line] = [one for one in done.stderr.splitlines() if one.startswith("Error: ")]
    assert line.startswith(f"Error: Invalid value for '{words[-1]}'")
    assert "is not a URL" in line
    assert "secret" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_what_a_path_is_appended_to_has_no_query() -> None:
    """A webhook with a question mark would get its path into the query."""
    done = CliRunner().invoke(main, ["demo", "--webhook", "http://h/?a=b"])

    assert done.exit_code == 2
    assert "give a URL without ? and #" in done.stderr


@pytest.mark.parametrize("uid", ["\udcff", "a b", "a\x1b[2J"])
def test_a_uid_of_a_data_source_is_plain_text(monkeypatch, tmp_path, uid):
    """What Grafana could not have, or JSON not hold, is a wrong command line."""
    monkeypatch.chdir(tmp_path)

    done = CliRunner().invoke(main, ["dashboards", "build", "--datasource", uid])

    assert done.exit_code == 2
    assert "use printable characters without spaces" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("address", "place", "target"),
    [
        ("http://h", ("h", 80), "/"),
        ("https://h/a/b?c=d", ("h", 443), "/a/b?c=d"),
        ("http://[::1]:9400/metrics", ("::1", 9400), "/metrics"),
        ("https://user:word@h:1/?x", ("h", 1), "/?x"),
    ],
)
def test_where_to_connect_and_what_to_ask_for(address, place, target):
    """The usual port where none is given, and a path in any case."""
    parts = parts_of(address)
    assert (place_of(parts), target_of(parts)) == (place, target)


def test_credentials_are_those_that_the_address_means() -> None:
    """What is written with percent signs is decoded before it is encoded in base64."""
    assert basic(parts_of("http://user:p%40ss@h")) == "Basic dXNlcjpwQHNz"
    assert basic(parts_of("http://user@h")) == "Basic dXNlcjo="


def test_secrets_of_an_address_are_its_password_in_both_forms() -> None:
    """As it is typed, and as a header has it; a user alone is no secret."""
    assert secrets_of(parts_of("http://user:p%40ss@h")) == ("p@ss", "dXNlcjpwQHNz")
    assert secrets_of(parts_of("http://user@h")) == ()


def test_an_address_is_shown_without_what_may_be_secret() -> None:
    """User, password and query are left out; a path may have an @, too."""
    parts = parts_of("https://user:word@h:1/a@b?token=c")
    assert shown(parts) == "https://h:1/a@b"


def test_host_and_port_are_told_apart() -> None:
    """An address of IPv6 stands in brackets, for it has colons itself."""
    assert authority("h", 80) == "h:80"
    assert authority("::1", 9400) == "[::1]:9400"


@pytest.mark.parametrize(
    ("host", "here"),
    [
        *[
            ("127.0.0.1", True),
            ("127.9.9.9", True),
            ("[::1]", True),
            ("LOCALHOST", True),
        ],
        *[("localhost.", True), ("app.localhost", True), ("localhost.example", False)],
        *[("10.0.0.1", False), ("grafana.example.com", False), ("xlocalhost", False)],
    ],
)
def test_which_addresses_are_of_this_host(host: str, here: bool) -> None:  # noqa: FBT001
    """Nothing else is one, whatever it begins or ends with."""
    assert is_loopback(parts_of(f"http://{host}/")) is here
