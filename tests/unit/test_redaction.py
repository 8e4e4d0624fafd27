"""Secrets that come back."""

import base64
import html
import json
from urllib.parse import quote, quote_plus

import pytest

from jaxmon.host.http.urls import Secrets


PASSWORD = 'p&ss/w+rd "of" <lärge> length\\'  # noqa: S105 - opens nothing


@pytest.mark.parametrize("secret", [PASSWORD, "glsa_abcDEF123", "admin", "x" * 1000])
@pytest.mark.parametrize(
    "form",
    [
        str,
        quote,
        lambda text: quote(text, safe=""),
        lambda text: quote(text, safe="").lower(),
        quote_plus,
        lambda text: json.dumps(text)[1:-1],
        html.escape,
        lambda text: text.encode().hex(),
        lambda text: text.encode().hex().upper(),
        lambda text: text.encode().hex(" "),
        lambda text: text.encode().hex(":"),
        lambda text: "".join(f"\\x{one:02x}" for one in text.encode())[2:],
        lambda text: "".join(f"%{one:02X}" for one in text.encode()),
        lambda text: quote(text, safe="").replace("a", "%61"),
    ],
)
def test_every_form(secret, form):
    """A secret is found in addresses, JSON, HTML and digits."""
    text = f"before {form(secret)} after"
    if form is quote and "/" in secret:
        text = text.replace("/", "%2F")
    assert Secrets(secret).redacted(text) == "before [secret] after"


@pytest.mark.parametrize("before", ["", "u:", "us:", "use:", "user:"])
@pytest.mark.parametrize("after", ["", "1", "12", "123"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_base64_of_more(before, after, encode):
    """In base64 it is found wherever it stands."""
    secret = "aß?pass>word~"  # noqa: S105 - opens nothing
    text = encode(f"{before}{secret}{after}".encode()).decode()
    shown = Secrets(secret).redacted(text)
    assert "[secret]" in shown
    assert len(shown) < len("[secret]") + 16


def test_the_longer_form_is_hidden_whole():
    """Of two secrets that begin alike nothing remains."""
    assert Secrets("abcdefgh", "abcdefghij").redacted("x abcdefghij") == "x [secret]"


def test_no_secret():
    """Where there is none, a text stays as it is."""
    assert Secrets("", "").redacted("a") == "a"
    assert Secrets().redacted("") == ""
