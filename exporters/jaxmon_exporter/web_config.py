"""
Prometheus's web configuration: TLS and authentication.

The file is that of exporter-toolkit, so one file serves every exporter of a host:
https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md. An
unsupported key is an error: it was meant to protect something. An error names known
keys, line and column, never content: a password may be in the wrong place.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from jaxmon.errors import ConfigFileError, WebConfigError
from jaxmon.host.files.bounded import read_text, require_regular
from jaxmon.host.formats.yaml_file import compose


if TYPE_CHECKING:
    import yaml


_VERSIONS = {
    "TLS10": ssl.TLSVersion.TLSv1,
    "TLS11": ssl.TLSVersion.TLSv1_1,
    "TLS12": ssl.TLSVersion.TLSv1_2,
    "TLS13": ssl.TLSVersion.TLSv1_3,
}
# Go can also request certificates without verifying them; Python's ssl cannot, and an
# unverified certificate protects nothing.
_CLIENT_AUTH = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
_TOP = ("tls_server_config", "http_server_config", "basic_auth_users")
_TLS = (
    *("cert_file", "key_file", "client_auth_type", "client_ca_file"),
    *("client_allowed_sans", "min_version", "max_version", "cipher_suites"),
    "prefer_server_cipher_suites",
)
_HTTP = ("http2", "headers")
_BCRYPT = re.compile(r"\$2[aby]\$([0-9]{2})\$[./A-Za-z0-9]{53}")
# Beyond this a single check takes seconds, and so would every wrong guess.
_MAX_COST = 16
_HEADERS = (
    "Content-Security-Policy",
    "Strict-Transport-Security",
    "X-Content-Type-Options",
    "X-Frame-Options",
    "X-XSS-Protection",
)
# What a plain value may be to YAML; its text is all that counts here.
_SCALARS = ("str", "int", "float", "bool", "timestamp")


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS settings: certificates, what is required of clients, versions, ciphers."""

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
        """The files of certificates and keys."""
        ca = (self.client_ca_file,) if self.client_ca_file else ()
        return (self.cert_file, self.key_file, *ca)

    def context(self) -> ssl.SSLContext:
        """Return a context with the files' content; `WebConfigError` names keys."""
        keys = ("cert_file", "key_file", "client_ca_file")
        for key, path in zip(keys, self.files, strict=False):
            try:
                require_regular(path)
            except ConfigFileError as error:
                msg = f"TLS cannot be set up, {key}: {error.problem}"
                raise WebConfigError(msg) from None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.minimum_version = self.min_version
            context.maximum_version = self.max_version
            if self.ciphers:
                context.set_ciphers(":".join(self.ciphers))
            context.load_cert_chain(self.cert_file, self.key_file, _no_passphrase)
            if self.client_ca_file is not None:
                context.load_verify_locations(self.client_ca_file)
        except (OSError, ValueError) as error:
            msg = f"TLS cannot be set up from {', '.join(keys[: len(self.files)])}: "
            raise WebConfigError(msg + str(error)) from None
        context.verify_mode = self.client_auth
        context.options |= ssl.OP_NO_RENEGOTIATION
        return context


@dataclass(frozen=True, slots=True)
class WebConfig:
    """The file: TLS, bcrypt hashes by user, and headers for every response."""

    tls: Tls | None = None
    users: Mapping[str, bytes] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def files(self) -> tuple[Path, ...]:
        """Files that it refers to, reloaded when they change."""
        return self.tls.files if self.tls else ()


def load(path: Path) -> WebConfig:
    """
    Read *path*; file names in it are relative to its directory. Raises
    `WebConfigError`: it cannot be read, or requires something unsupported. Never shows
    its content.
    """
    try:
        top = _ConfigValue("", compose(read_text(path), secret=True)).section(_TOP)
        tls = top["tls_server_config"]
        http = top["http_server_config"].section(_HTTP)
        http["http2"].check_flag()
        return WebConfig(
            tls=None if tls.empty else _tls(tls, path.parent),
            users=_users(top["basic_auth_users"]),
            headers=_headers(http["headers"]),
        )
    except ConfigFileError as error:
        reason = str(error).removeprefix("cannot be read: ")
        msg = f"web configuration {path} cannot be read: {reason}"
        raise WebConfigError(msg) from None
    except WebConfigError as error:
        msg = f"web configuration {path}: {error}"
        raise WebConfigError(msg) from None


class _ConfigValue(NamedTuple):
    """A value of the file, `None` if it is absent, and the keys that lead to it."""

    name: str
    node: yaml.Node | None

    def fail(self, problem: str) -> NoReturn:
        """Raise a `WebConfigError` with names, line, column and *problem*."""
        msg = f"{self.name or 'the file'} {problem}"
        if self.node is not None:
            mark = self.node.start_mark
            msg += f" (line {mark.line + 1}, column {mark.column + 1})"
        raise WebConfigError(msg)

    @property
    def kind(self) -> str:
        """Its YAML tag: ``null`` also if it is missing."""
        if self.node is None:
            return "null"
        prefix, _, kind = str(self.node.tag).rpartition("tag:yaml.org,2002:")
        if prefix or kind.startswith("!"):
            self.fail("has an unsupported YAML tag; quote the value")
        return kind

    @property
    def empty(self) -> bool:
        """Whether nothing is said: it is not there, null, an empty text or mapping."""
        return self.kind == "null" or (self.node is not None and not self.node.value)

    def items(self) -> list[tuple[_ConfigValue, _ConfigValue]]:
        """Return keys and values of a mapping, the keys unique."""
        if self.kind == "null":
            return []
        if self.kind != "map":
            self.fail("must be a mapping")
        found: dict[str, tuple[_ConfigValue, _ConfigValue]] = {}
        for key_node, node in self.node.value:  # type: ignore[union-attr]
            key = _ConfigValue(self.name, key_node)
            if key.text() in found:
                key.fail("has a duplicate key")
            found[key.text()] = key, _ConfigValue(self.name, node)
        return list(found.values())

    def section(self, allowed: tuple[str, ...]) -> dict[str, _ConfigValue]:
        """Return the values by key, one for each key that is *allowed*."""
        prefix = f"{self.name}." if self.name else ""
        found = {key: _ConfigValue(prefix + key, None) for key in allowed}
        for key, value in self.items():
            name = key.text()
            if name not in found:
                key.fail(f"has an unknown key; its keys are {', '.join(allowed)}")
            found[name] = _ConfigValue(prefix + name, value.node)
        return found

    def text(self) -> str:
        """Return a plain value as it is written, nothing as an empty text."""
        if self.kind == "null":
            return ""
        if self.kind not in _SCALARS:
            self.fail("must be a string")
        return str(self.node.value)  # type: ignore[union-attr]

    def texts(self) -> list[_ConfigValue]:
        """Return the values of a list of strings."""
        if self.kind not in ("null", "seq"):
            self.fail("must be a list of strings")
        nodes = self.node.value if self.kind == "seq" else ()  # type: ignore[union-attr]
        found = [_ConfigValue(self.name, node) for node in nodes]
        for value in found:
            if not value.text():
                value.fail("must be a list of strings")
        return found

    def check_flag(self) -> None:
        """Reject a value that is not true, false or null."""
        # To YAML 1.1, and so to Prometheus, y and n are truth values as well.
        plain = self.kind == "str" and self.node.style is None  # type: ignore[union-attr]
        is_letter = plain and self.text() in tuple("yYnN")
        if self.kind not in ("null", "bool") and not is_letter:
            self.fail("must be true or false")

    def one_of(self, table: Mapping[str, Any], default: str) -> Any:
        """Return what *table* has for this value."""
        name = self.text() or default
        if name not in table:
            self.fail(f"is not supported; use one of {', '.join(table)}")
        return table[name]


def _tls(section: _ConfigValue, directory: Path) -> Tls:
    found = section.section(_TLS)
    found["prefer_server_cipher_suites"].check_flag()
    for name in ("cert_file", "key_file"):
        if not found[name].text():
            section.fail(f"needs {name}")
    authority = found["client_ca_file"]
    kind = found["client_auth_type"]
    given = authority.text()
    client_auth = kind.one_of(
        _CLIENT_AUTH, "RequireAndVerifyClientCert" if given else "NoClientCert"
    )
    if client_auth != ssl.CERT_NONE and not given:
        kind.fail(f"{kind.text()} needs client_ca_file")
    if client_auth == ssl.CERT_NONE and given:
        authority.fail("has no effect with client_auth_type NoClientCert")
    tls = Tls(
        cert_file=directory / found["cert_file"].text(),
        key_file=directory / found["key_file"].text(),
        client_auth=client_auth,
        client_ca_file=directory / given if given else None,
        allowed_sans=tuple(
            name.text() for name in found["client_allowed_sans"].texts()
        ),
        min_version=found["min_version"].one_of(_VERSIONS, "TLS12"),
        max_version=found["max_version"].one_of(_VERSIONS, "TLS13"),
        ciphers=tuple(_ciphers(found["cipher_suites"].texts())),
    )
    if tls.allowed_sans and client_auth != ssl.CERT_REQUIRED:
        problem = "needs client_auth_type RequireAndVerifyClientCert"
        found["client_allowed_sans"].fail(problem)
    if tls.min_version > tls.max_version:
        found["min_version"].fail("is higher than max_version")
    chosen = not found["cipher_suites"].empty
    if chosen and not tls.ciphers and tls.min_version < _VERSIONS["TLS13"]:
        problem = "has none for TLS 1.2; add one, or min_version: TLS13"
        found["cipher_suites"].fail(problem)
    return tls


def _users(found: _ConfigValue) -> dict[str, bytes]:
    users = {}
    for name, value in found.items():
        # A colon ends the name in what a client sends.
        if not name.text() or ":" in name.text():
            name.fail("has a user name that is empty or contains a colon")
        text = value.text() if value.kind in _SCALARS else ""
        if (match := _BCRYPT.fullmatch(text)) is None:
            value.fail(
                "has a password that is not a bcrypt hash; create one with "
                "`htpasswd -nBC 10 NAME`"
            )
        if int(match[1]) > _MAX_COST:
            value.fail(f"has a hash of cost {match[1]}; at most {_MAX_COST}")
        users[name.text()] = text.encode("ascii")
    if not users and found.kind != "null":
        found.fail("must map names to bcrypt hashes")
    return users


def _headers(found: _ConfigValue) -> dict[str, str]:
    headers = {}
    for name, value in found.section(_HEADERS).items():
        if value.node is not None:
            headers[name] = text = value.text()
            if not (text and text.isprintable() and text.isascii()):
                value.fail("must be printable ASCII")
    return headers


def _ciphers(names: Iterable[_ConfigValue]) -> Iterable[str]:
    """Yield OpenSSL's names of the suites *names* that are for TLS 1.2."""
    for name in names:
        if name.text() not in ALWAYS_ON:
            cipher = openssl_name(name.text())
            if not is_possible(cipher):
                name.fail("has an unsupported cipher suite")
            yield cipher


def _no_passphrase() -> str:
    # Without this, OpenSSL would prompt on the terminal, and wait.
    msg = "the key is encrypted; use one without a passphrase"
    raise WebConfigError(msg)


# Suites of TLS 1.3 cannot be chosen, here or in Go.
ALWAYS_ON = (
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
)


def is_possible(cipher: str) -> bool:
    """Return whether this OpenSSL has a suite of that OpenSSL name."""
    # A name, not a list of them nor a rule, such as HIGH:!aNULL@SECLEVEL=0.
    if not re.fullmatch(r"[A-Za-z0-9_-]+", cipher):
        return False
    try:
        # One at a time: OpenSSL silently drops unknown names from a list.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(cipher)
    except ssl.SSLError:
        return False
    return True


def openssl_name(name: str) -> str:
    """Return OpenSSL's name of a suite of TLS 1.2 given by Go's."""
    match = re.fullmatch(r"TLS_(\w+?)_WITH_(\w+)", name)
    if match is None:
        return name
    exchange, rest = match.groups()
    rest = re.sub(r"AES_(\d+)", r"AES\1", rest).replace("_CBC", "")
    rest = rest.replace("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305")
    prefix = "" if exchange == "RSA" else exchange.replace("_", "-") + "-"
    return prefix + rest.replace("_", "-")
