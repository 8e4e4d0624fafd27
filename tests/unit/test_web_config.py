"""Prometheus's web configuration: what is taken from it, and what is refused."""

import os
import ssl
import subprocess
import traceback
from pathlib import Path

import pytest

from jaxmon.errors import WebConfigError
from jaxmon_exporter.web_config import Tls, WebConfig, load, openssl_name
from tests.helpers.processes import require_program


HASH = "$2b$04$" + "a" * 53
TLS = "tls_server_config: {cert_file: c.pem, key_file: /k.pem"


def written(directory: Path, text: str) -> Path:
    path = directory / "web.yml"
    path.write_text(text)
    return path


def test_an_empty_file_protects_nothing(tmp_path: Path) -> None:
    """Plain HTTP without passwords, as in Prometheus."""
    assert load(written(tmp_path, "")) == WebConfig()


def test_file_names_are_relative_to_the_file(tmp_path: Path) -> None:
    """Certificates lie beside the configuration, unless their paths are absolute."""
    assert load(written(tmp_path, TLS + "}")) == WebConfig(
        Tls(tmp_path / "c.pem", Path("/k.pem"))
    )


def test_everything_that_can_be_said(tmp_path: Path) -> None:
    """Client certificates, versions, ciphers, passwords and headers are understood."""
    text = f"""
tls_server_config:
  cert_file: c.pem
  key_file: k.pem
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: ca.pem
  client_allowed_sans: [prometheus.example]
  min_version: TLS13
  cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]
  prefer_server_cipher_suites: true
http_server_config:
  http2: false
  headers: {{X-Frame-Options: deny}}
basic_auth_users:
  alice: {HASH}
"""
    assert load(written(tmp_path, text)) == WebConfig(
        Tls(
            cert_file=tmp_path / "c.pem",
            key_file=tmp_path / "k.pem",
            client_auth=ssl.CERT_REQUIRED,
            client_ca_file=tmp_path / "ca.pem",
            allowed_sans=("prometheus.example",),
            min_version=ssl.TLSVersion.TLSv1_3,
            ciphers=("ECDHE-RSA-AES128-GCM-SHA256",),
        ),
        {"alice": HASH.encode()},
        {"X-Frame-Options": "deny"},
    )


@pytest.mark.parametrize(
    ("go", "openssl"),
    [
        ("TLS_RSA_WITH_AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        (
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
            "ECDHE-ECDSA-CHACHA20-POLY1305",
        ),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA", "ECDHE-RSA-AES128-SHA"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA256", "AES128-SHA256"),
        ("ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
    ],
)
def test_names_of_ciphers_are_openssls(go: str, openssl: str) -> None:
    """Go's names become names that this OpenSSL knows."""
    assert openssl_name(go) == openssl


def test_suites_of_tls_1_3_are_always_on(tmp_path: Path) -> None:
    """They may be listed, as for Go, and are nothing that could be chosen."""
    suites = "TLS_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
    found = load(written(tmp_path, TLS + f", cipher_suites: [{suites}]}}")).tls
    assert found is not None
    assert found.ciphers == ("ECDHE-RSA-AES256-GCM-SHA384",)
    only = ", min_version: TLS13, cipher_suites: [TLS_AES_128_GCM_SHA256]}"
    found = load(written(tmp_path, TLS + only)).tls
    assert found is not None
    assert found.ciphers == ()


ODD_COST = "$\u0660\u0664$"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[1]", "the file must be a mapping"),
        ("tls: {}", "the file has an unknown key; its keys are tls_server_config,"),
        (
            TLS + ", keyfile: x}",
            "tls_server_config has an unknown key; its keys are cert_file",
        ),
        ("tls_server_config: {key_file: k}", "tls_server_config needs cert_file"),
        (
            TLS + ", min_version: SSL3}",
            "tls_server_config.min_version is not supported; use one of TLS10",
        ),
        (
            TLS + ", min_version: TLS13, max_version: TLS12}",
            "min_version is higher than max_version",
        ),
        (
            TLS + ", client_auth_type: RequireAnyClientCert, client_ca_file: x}",
            "client_auth_type is not supported; use one of NoClientCert",
        ),
        (
            TLS + ", client_auth_type: RequireAndVerifyClientCert}",
            "client_auth_type RequireAndVerifyClientCert needs client_ca_file",
        ),
        (
            TLS + ", client_auth_type: NoClientCert, client_ca_file: x}",
            "client_ca_file has no effect",
        ),
        (
            TLS + ", client_allowed_sans: [x]}",
            "client_allowed_sans needs client_auth_type",
        ),
        (TLS + ", cipher_suites: x}", "cipher_suites must be a list of strings"),
        (
            TLS + ", cipher_suites: [AES128-GCM-SHA256, NONE_SUCH]}",
            "cipher_suites has an unsupported cipher suite",
        ),
        (
            TLS + ", cipher_suites: [TLS_AES_128_GCM_SHA256]}",
            "cipher_suites has none for TLS 1.2; add one, or min_version: TLS13",
        ),
        ("http_server_config: {http2: maybe}", "http2 must be true or false"),
        ('http_server_config: {http2: "true"}', "http2 must be true or false"),
        ("http_server_config: {http2: [true]}", "http2 must be true or false"),
        (
            TLS + ", prefer_server_cipher_suites: 1}",
            "prefer_server_cipher_suites must be true or false",
        ),
        ("basic_auth_users: {}", "basic_auth_users must map names"),
        (
            f"basic_auth_users: {{'a:b': {HASH}}}",
            "basic_auth_users has a user name that is empty or contains a colon",
        ),
        (
            f"basic_auth_users: {{'': {HASH}}}",
            "basic_auth_users has a user name that is empty or contains a colon",
        ),
        (
            f"basic_auth_users: {{bob: {HASH.replace('$04$', ODD_COST)}}}",
            "basic_auth_users has a password that is not a bcrypt hash",
        ),
        (
            "basic_auth_users: {bob: secret}",
            "basic_auth_users has a password that is not a bcrypt hash",
        ),
        (
            "basic_auth_users: {bob: 7}",
            "basic_auth_users has a password that is not a bcrypt hash",
        ),
        (
            f"basic_auth_users: {{bob: {HASH.replace('$04$', '$17$')}}}",
            "basic_auth_users has a hash of cost 17; at most 16",
        ),
        (
            "http_server_config: {headers: {Server: x}}",
            "headers has an unknown key; its keys are Content-Security-Policy",
        ),
        (
            'http_server_config: {headers: {X-Frame-Options: "a\\r\\nb"}}',
            "headers.X-Frame-Options must be printable ASCII",
        ),
        (
            'http_server_config: {headers: {X-Frame-Options: "\u65e5"}}',
            "headers.X-Frame-Options must be printable ASCII",
        ),
        ("a: [", "cannot be read"),
    ],
)
def test_what_cannot_be_honoured_is_refused(
    tmp_path: Path, text: str, complaint: str
) -> None:
    """An unknown key is an error that names the file, and shows no password."""
    path = written(tmp_path, text)
    with pytest.raises(WebConfigError) as caught:
        load(path)
    assert complaint in str(caught.value)
    assert str(path) in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """The error names the file."""
    with pytest.raises(WebConfigError, match=r"web\.yml cannot be read"):
        load(tmp_path / "web.yml")


def test_certificates_that_cannot_be_used(tmp_path: Path) -> None:
    """Missing, broken and slow files are an error that names their keys."""
    tls = Tls(tmp_path / "c.pem", tmp_path / "k.pem")
    with pytest.raises(WebConfigError, match=r"cert_file: .*No such file"):
        tls.context()
    os.mkfifo(tmp_path / "c.pem")
    with pytest.raises(WebConfigError, match="cert_file: is a pipe"):
        tls.context()
    (tmp_path / "c.pem").unlink()
    for file in tls.files:
        file.write_text("no certificate")
    with pytest.raises(
        WebConfigError, match="TLS cannot be set up from cert_file, key_"
    ):
        tls.context()
    for file in tls.files:
        file.write_text("-----BEGIN CERTIFICATE-----\n" * 100_000)
    with pytest.raises(WebConfigError, match=r"cert_file: too large \(limit 1 MiB"):
        tls.context()


def test_a_key_with_a_passphrase_is_refused(tmp_path: Path) -> None:
    """There is no one to prompt: startup does not wait at the terminal."""
    require_program("openssl")
    command = (
        "openssl req -x509 -newkey rsa:2048 -passout pass:hidden -subj /CN=x "
        f"-keyout {tmp_path}/k.pem -out {tmp_path}/c.pem"
    )
    subprocess.run(command.split(), check=True, capture_output=True, timeout=60)
    with pytest.raises(WebConfigError, match="the key is encrypted; use one without"):
        Tls(tmp_path / "c.pem", tmp_path / "k.pem").context()


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("basic_auth_users: {bob: hunter2}", "(line 1, column 25)"),
        ("basic_auth_users:\n  hunter2: bob\n", "(line 2, column 12)"),
        ("basic_auth_users:\n  bob: @hunter2\n", "line 2, column 8"),
        ("basic_auth_users:\n  bob: !hunter2\n", "(line 2, column 8)"),
        ("basic_auth_users:\n  bob: !!hunter2 x\n", "(line 2, column 8)"),
        ("basic_auth_users:\n  bob: hunter2: x\n", "line 2, column "),
        ("basic_auth_users:\n  bob: {hunter2: x}\n", "(line 2, column 8)"),
        ("basic_auth_users:\n  bob: [hunter2]\n", "(line 2, column 8)"),
        ("basic_auth_users:\n  bob: *hunter2\n", "line 2, column 8"),
        ("basic_auth_users:\n  bob: %hunter2\n", "line 2, column 8"),
        ("basic_auth_users:\n  bob: 'hunter2\n", "line "),
        ("basic_auth_users:\nhunter2: x\n", "(line 2, column 1)"),
        ("basic_auth_users: [hunter2]", "(line 1, column 19)"),
        ("basic_auth_users: hunter2", "(line 1, column 19)"),
        ("hunter2", "(line 1, column 1)"),
        (TLS + ", hunter2: x}", "(line 1, column 57)"),
        (TLS + ", min_version: hunter2}", "(line 1, column 70)"),
        (TLS + ", client_auth_type: hunter2}", "(line 1, column 75)"),
        (TLS + ", cipher_suites: [hunter2]}", "(line 1, column 73)"),
        ("tls_server_config: {cert_file: hunter2}", "(line 1, column 20)"),
        ("http_server_config: {headers: {hunter2: x}}", "(line 1, column 32)"),
        ("http_server_config: {hunter2: {X: x}}", "(line 1, column 22)"),
    ],
)
def test_an_error_shows_a_place_and_no_content(
    tmp_path: Path, text: str, place: str
) -> None:
    """A misplaced password is in no message, nor in what caused it."""
    with pytest.raises(WebConfigError) as caught:
        load(written(tmp_path, text))
    assert place in str(caught.value)
    told = "".join(traceback.format_exception(caught.value))
    # The test itself is on the stack, and quoted.
    assert "hunter2" not in told.replace(text, "")
