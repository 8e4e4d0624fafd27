"""
Prometheus's web configuration: what is taken from it, and what is refused.
"""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from jaxmon.errors import WebConfigError
from jaxmon_exporter import web_config
from jaxmon_exporter.web_config import Tls, WebConfig, load


HASH = "$2b$04$" + "a" * 53
TLS = "tls_server_config: {cert_file: c.pem, key_file: /k.pem"


def written(directory: Path, text: str) -> Path:
    path = directory / "web.yml"
    path.write_text(text)
    return path


def test_an_empty_file_protects_nothing(tmp_path: Path) -> None:
    """
    Plain HTTP without passwords, as in Prometheus.
    """
    assert load(written(tmp_path, "")) == WebConfig()


def test_file_names_are_relative_to_the_file(tmp_path: Path) -> None:
    """
    Certificates lie beside the configuration, unless their paths are absolute.
    """
    assert load(written(tmp_path, TLS + "}")) == WebConfig(
        Tls(tmp_path / "c.pem", Path("/k.pem"))
    )


def test_everything_that_can_be_said(tmp_path: Path) -> None:
    """
    Client certificates, versions, ciphers, passwords and headers are understood.
    """
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
        (
            "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
            "ECDHE-ECDSA-AES256-GCM-SHA384",
        ),
        ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA", "ECDHE-RSA-AES128-SHA"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA256", "AES128-SHA256"),
        ("ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
    ],
)
def test_names_of_ciphers_are_openssls(go: str, openssl: str) -> None:
    """
    Go's names become names that this OpenSSL knows.
    """
    assert web_config._cipher(go) == openssl


def test_suites_of_tls_1_3_are_always_on(tmp_path: Path) -> None:
    """
    They may be listed, as for Go, and are nothing that could be chosen.
    """
    suites = "TLS_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
    found = load(written(tmp_path, TLS + f", cipher_suites: [{suites}]}}")).tls
    assert found is not None
    assert found.ciphers == ("ECDHE-RSA-AES256-GCM-SHA384",)
    only = ", min_version: TLS13, cipher_suites: [TLS_AES_128_GCM_SHA256]}"
    found = load(written(tmp_path, TLS + only)).tls
    assert found is not None
    assert found.ciphers == ()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[1]", "the file must be a mapping"),
        ("tls: {}", "the file has tls; its keys are tls_server_config,"),
        (
            TLS + ", keyfile: x}",
            "tls_server_config has keyfile; its keys are cert_file",
        ),
        ("tls_server_config: {key_file: k}", "tls_server_config needs cert_file"),
        (TLS + ", min_version: SSL3}", "min_version 'SSL3' is not possible here"),
        (
            TLS + ", min_version: TLS13, max_version: TLS12}",
            "min_version is above max_version",
        ),
        (
            TLS + ", client_auth_type: RequireAnyClientCert, client_ca_file: x}",
            "client_auth_type 'RequireAnyClientCert' is not possible here",
        ),
        (
            TLS + ", client_auth_type: RequireAndVerifyClientCert}",
            "client_auth_type RequireAndVerifyClientCert needs client_ca_file",
        ),
        (
            TLS + ", client_auth_type: NoClientCert, client_ca_file: x}",
            "client_ca_file is of no use",
        ),
        (
            TLS + ", client_allowed_sans: [x]}",
            "client_allowed_sans needs client_auth_type",
        ),
        (TLS + ", cipher_suites: x}", "cipher_suites must be a list of texts"),
        (
            TLS + ", cipher_suites: [AES128-GCM-SHA256, NONE_SUCH]}",
            "cipher suite NONE_SUCH is not possible here",
        ),
        (
            TLS + ", cipher_suites: [TLS_AES_128_GCM_SHA256]}",
            "cipher_suites has none for TLS 1.2; add one, or min_version: TLS13",
        ),
        ("basic_auth_users: {}", "basic_auth_users must map names"),
        ("basic_auth_users: {bob: secret}", "the password of 'bob' is no bcrypt hash"),
        ("basic_auth_users: {bob: 7}", "the password of 'bob' is no bcrypt hash"),
        (
            f"basic_auth_users: {{bob: {HASH.replace('$04$', '$17$')}}}",
            "the hash of 'bob' has cost 17; at most 16",
        ),
        (
            "http_server_config: {headers: {Server: x}}",
            "headers has Server; its keys are Content-Security-Policy",
        ),
        (
            'http_server_config: {headers: {X-Frame-Options: "a\\r\\nb"}}',
            "header X-Frame-Options must be a printable text",
        ),
        (
            'http_server_config: {headers: {X-Frame-Options: "\u65e5"}}',
            "header X-Frame-Options must be a printable text in ASCII",
        ),
        ("a: [", "cannot be read"),
    ],
)
def test_what_cannot_be_honoured_is_refused(
    tmp_path: Path, text: str, complaint: str
) -> None:
    """
    A key that is not understood was written to protect something: it is an error
    that names the file, and shows no password.
    """
    path = written(tmp_path, text)
    with pytest.raises(WebConfigError) as caught:
        load(path)
    assert complaint in str(caught.value)
    assert str(path) in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """
    The error names the file.
    """
    with pytest.raises(WebConfigError, match=r"web\.yml cannot be read"):
        load(tmp_path / "web.yml")


def test_certificates_that_cannot_be_used(tmp_path: Path) -> None:
    """
    Missing and broken files are one error that names them.
    """
    tls = Tls(tmp_path / "c.pem", tmp_path / "k.pem")
    with pytest.raises(WebConfigError, match=r"c\.pem.*k\.pem"):
        tls.context()
    for file in tls.files:
        file.write_text("no certificate")
    with pytest.raises(WebConfigError, match="TLS cannot be set up"):
        tls.context()
