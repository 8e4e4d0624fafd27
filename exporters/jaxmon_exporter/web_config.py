"""
Who may read the pages, and how they are encrypted: Prometheus's web configuration.

The file is that of exporter-toolkit, so one file serves every exporter of a host:
https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md.
A key that cannot be honoured is an error, never ignored: it was written to protect.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from jaxmon.errors import WebConfigError


_VERSIONS = {
    "TLS10": ssl.TLSVersion.TLSv1,
    "TLS11": ssl.TLSVersion.TLSv1_1,
    "TLS12": ssl.TLSVersion.TLSv1_2,
    "TLS13": ssl.TLSVersion.TLSv1_3,
}
# Suites of TLS 1.3 cannot be chosen, here or in Go.
_ALWAYS_ON = (
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
)
# Go can also ask for certificates without verifying them; Python's ssl cannot, and
# what is not verified protects nothing.
_CLIENT_AUTH = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
_TOP = ("tls_server_config", "http_server_config", "basic_auth_users")
_TLS = (
    "cert_file",
    "key_file",
    "client_auth_type",
    "client_ca_file",
    "client_allowed_sans",
    "min_version",
    "max_version",
    "cipher_suites",
    "prefer_server_cipher_suites",
)
_HTTP = ("http2", "headers")
_BCRYPT = re.compile(r"\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}")
# Beyond this a single check takes seconds, and so would every wrong guess.
_MAX_COST = 16
_HEADERS = (
    "Content-Security-Policy",
    "Strict-Transport-Security",
    "X-Content-Type-Options",
    "X-Frame-Options",
    "X-XSS-Protection",
)


@dataclass(frozen=True, slots=True)
class Tls:
    """
    How connections are encrypted.

    Args:
        cert_file: PEM, the chain included.
        key_file: PEM.
        client_auth: what is asked of clients.
        client_ca_file: PEM of who signs clients' certificates.
        allowed_sans: one of these names must be in a client's certificate.
        min_version: of TLS.
        max_version: of TLS.
        ciphers: for TLS 1.2, in OpenSSL's spelling.
    """

    cert_file: Path
    key_file: Path
    client_auth: ssl.VerifyMode = ssl.CERT_NONE
    client_ca_file: Path | None = None
    allowed_sans: tuple[str, ...] = ()
    min_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    max_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
    ciphers: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[Path, ...]:
        """
        The files to read again when they change.
        """
        ca = (self.client_ca_file,) if self.client_ca_file else ()
        return (self.cert_file, self.key_file, *ca)

    def context(self) -> ssl.SSLContext:
        """
        Return a context with what the files hold now.

        Raises:
            WebConfigError: a file cannot be used.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.minimum_version = self.min_version
            context.maximum_version = self.max_version
            if self.ciphers:
                context.set_ciphers(":".join(self.ciphers))
            context.load_cert_chain(self.cert_file, self.key_file)
            if self.client_ca_file is not None:
                context.load_verify_locations(self.client_ca_file)
        except (OSError, ValueError) as error:
            names = ", ".join(map(str, self.files))
            msg = f"TLS cannot be set up from {names}: {error}"
            raise WebConfigError(msg) from error
        context.verify_mode = self.client_auth
        context.options |= ssl.OP_NO_RENEGOTIATION
        return context


@dataclass(frozen=True, slots=True)
class WebConfig:
    """
    What the file says.

    Args:
        tls: `None` for plain HTTP.
        users: bcrypt hash by name; empty lets everybody in.
        headers: added to every response.
    """

    tls: Tls | None = None
    users: Mapping[str, bytes] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


def load(path: Path) -> WebConfig:
    """
    Read *path*; file names in it are relative to its directory.

    Raises:
        WebConfigError: it cannot be read, or asks for what is not possible here.
    """
    try:
        document = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        msg = f"web configuration {path} cannot be read: {error}"
        raise WebConfigError(msg) from error
    try:
        top = _section(document, "the file", _TOP)
        tls = _section(top.get("tls_server_config"), "tls_server_config", _TLS)
        http = _section(top.get("http_server_config"), "http_server_config", _HTTP)
        return WebConfig(
            tls=_tls(tls, path.parent) if tls else None,
            users=_users(top.get("basic_auth_users")),
            headers=_headers(http.get("headers")),
        )
    except WebConfigError as error:
        msg = f"web configuration {path}: {error}"
        raise WebConfigError(msg) from None


def _section(value: Any, name: str, known: tuple[str, ...]) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        msg = f"{name} must be a mapping; its keys are {', '.join(known)}"
        raise WebConfigError(msg)
    if unknown := sorted(str(key) for key in value if key not in known):
        msg = f"{name} has {', '.join(unknown)}; its keys are {', '.join(known)}"
        raise WebConfigError(msg)
    return value


def _tls(found: dict[str, Any], directory: Path) -> Tls:
    for name in ("cert_file", "key_file"):
        if not found.get(name):
            msg = f"tls_server_config needs {name}"
            raise WebConfigError(msg)
    authority = found.get("client_ca_file")
    kind = found.get("client_auth_type") or (
        "RequireAndVerifyClientCert" if authority else "NoClientCert"
    )
    client_auth = _one_of(_CLIENT_AUTH, kind, "client_auth_type")
    if client_auth != ssl.CERT_NONE and not authority:
        msg = f"client_auth_type {kind} needs client_ca_file"
        raise WebConfigError(msg)
    if client_auth == ssl.CERT_NONE and authority:
        msg = "client_ca_file is of no use with client_auth_type NoClientCert"
        raise WebConfigError(msg)
    tls = Tls(
        cert_file=directory / str(found["cert_file"]),
        key_file=directory / str(found["key_file"]),
        client_auth=client_auth,
        client_ca_file=directory / str(authority) if authority else None,
        allowed_sans=_texts(found.get("client_allowed_sans"), "client_allowed_sans"),
        min_version=_one_of(
            _VERSIONS, found.get("min_version") or "TLS12", "min_version"
        ),
        max_version=_one_of(
            _VERSIONS, found.get("max_version") or "TLS13", "max_version"
        ),
        ciphers=_ciphers(_texts(found.get("cipher_suites"), "cipher_suites")),
    )
    if tls.allowed_sans and client_auth != ssl.CERT_REQUIRED:
        msg = "client_allowed_sans needs client_auth_type RequireAndVerifyClientCert"
        raise WebConfigError(msg)
    if tls.min_version > tls.max_version:
        msg = "min_version is above max_version"
        raise WebConfigError(msg)
    if (
        found.get("cipher_suites")
        and not tls.ciphers
        and tls.min_version < _VERSIONS["TLS13"]
    ):
        msg = "cipher_suites has none for TLS 1.2; add one, or min_version: TLS13"
        raise WebConfigError(msg)
    return tls


def _users(found: Any) -> dict[str, bytes]:
    if found is None:
        return {}
    if not isinstance(found, dict) or not found:
        msg = "basic_auth_users must map names to bcrypt hashes"
        raise WebConfigError(msg)
    users = {}
    for name, text in found.items():
        match = _BCRYPT.fullmatch(text) if isinstance(text, str) else None
        # The text is not shown: somebody may have written the password itself.
        if match is None:
            msg = (
                f"the password of {name!r} is no bcrypt hash; make one with "
                "`htpasswd -nBC 10 NAME`"
            )
            raise WebConfigError(msg)
        if int(match[1]) > _MAX_COST:
            msg = f"the hash of {name!r} has cost {match[1]}; at most {_MAX_COST}"
            raise WebConfigError(msg)
        users[str(name)] = text.encode("ascii")
    return users


def _headers(found: Any) -> dict[str, str]:
    headers = _section(found, "headers", _HEADERS)
    for name, text in headers.items():
        if not (isinstance(text, str) and text.isprintable() and text.isascii()):
            msg = f"header {name} must be a printable text in ASCII"
            raise WebConfigError(msg)
    return headers


def _one_of(table: Mapping[str, Any], value: Any, name: str) -> Any:
    if value not in table:
        msg = f"{name} {value!r} is not possible here; use one of {', '.join(table)}"
        raise WebConfigError(msg)
    return table[value]


def _texts(value: Any, name: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        msg = f"{name} must be a list of texts"
        raise WebConfigError(msg)
    return tuple(value)


def _ciphers(names: tuple[str, ...]) -> tuple[str, ...]:
    """
    Return OpenSSL's names of the suites *names* that are for TLS 1.2.
    """
    found = []
    for name in names:
        if name in _ALWAYS_ON:
            continue
        cipher = _cipher(name)
        try:
            # Alone: of a list OpenSSL leaves out in silence what it does not know.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(cipher)
        except ssl.SSLError:
            msg = f"cipher suite {name} is not possible here"
            raise WebConfigError(msg) from None
        found.append(cipher)
    return tuple(found)


def _cipher(name: str) -> str:
    """
    Return OpenSSL's name of a suite of TLS 1.2 that is given by Go's.

    ``TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`` is ``ECDHE-RSA-AES128-GCM-SHA256``, and
    ``TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA`` is ``ECDHE-RSA-AES128-SHA``.
    """
    match = re.fullmatch(r"TLS_(\w+?)_WITH_(\w+)", name)
    if match is None:
        return name
    exchange, rest = match.groups()
    rest = re.sub(r"AES_(\d+)", r"AES\1", rest).replace("_CBC", "")
    rest = rest.replace("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305")
    prefix = "" if exchange == "RSA" else exchange.replace("_", "-") + "-"
    return prefix + rest.replace("_", "-")
