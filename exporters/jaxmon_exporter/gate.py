"""Access control: TLS contexts and passwords, reloaded from their files."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import logging
import os
import ssl
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from http import HTTPStatus
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from jaxmon.catalog import WEB_CONFIG_SUCCESS
from jaxmon.errors import CommandError, WebConfigError
from jaxmon.exposition.families import Family, gauge
from jaxmon.host.http.messages import Request, Response, error_response
from jaxmon.host.http.sockets import READ, WRITE, Transport
from jaxmon_exporter.web_config import WebConfig, load


if TYPE_CHECKING:
    import socket


log = logging.getLogger("jaxmon.exporter")

OPEN_PATHS = ("/-/healthy", "/-/ready")
"""Unauthenticated probe endpoints, which reveal nothing."""

# Maximum number of waiting checks; one more is rejected immediately.
_WAITING = 32
_REMEMBERED = 128
_MAX_PASSWORD = 1024
_REFUSED = error_response(HTTPStatus.UNAUTHORIZED, "name and password")._replace(
    headers={"WWW-Authenticate": "Basic"}
)


class AccessGate:
    """
    The active web configuration, reloaded when one of its files changes; an invalid
    change is logged once and exported, and the previous configuration stays in effect.
    Raises `WebConfigError`: it is invalid; `CommandError`: passwords need bcrypt.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.RLock()
        # State of the files of the latest attempt before they were read.
        self._stamps: Mapping[Path, object] = {}
        self._failed = self._serving = False
        self._config = WebConfig()
        self._context: ssl.SSLContext | None = None
        self._bcrypt: ModuleType | None = None
        self._salt = os.urandom(16)
        # Passwords checked before, so that a scrape does not wait for a slow hash.
        self._checked: OrderedDict[bytes, bool] = OrderedDict()
        self._checking = 0
        # One thread: guessing passwords must not take more than one core.
        self._pool = ThreadPoolExecutor(1, "jaxmon-passwords")
        self._read()

    def reload(self) -> bool:
        """Read the files now; return whether they are in effect. Thread-safe."""
        with self._lock:
            self._renew()
            return not self._failed

    def family(self) -> Family:
        """Return whether the files are in effect."""
        return gauge(WEB_CONFIG_SUCCESS, 0 if self._failed else 1)

    @property
    def encrypted(self) -> bool:
        """Return whether clients must use TLS. That does not change at run time."""
        return self._context is not None

    @property
    def guards(self) -> bool:
        """Return whether clients must use TLS or a password."""
        return self.encrypted or bool(self._config.users)

    @property
    def authenticates(self) -> bool:
        """Return whether clients must give a password or a certificate."""
        tls = self._config.tls
        by_certificate = tls is not None and tls.client_auth == ssl.CERT_REQUIRED
        return by_certificate or bool(self._config.users)

    @property
    def headers(self) -> dict[str, str]:
        """Headers for every response."""
        return dict(self._config.headers)

    def open(self, sock: socket.socket) -> Transport:
        """Return a client's transport, with the latest certificate; `OSError`."""
        self._follow()
        if self._context is None:
            return Transport(sock)
        return TlsTransport(sock, self._context, self.admits_certificate)

    def check(self, request: Request) -> Response | Future[Response | None] | None:
        """Return the response that rejects *request*, `None` if it is allowed."""
        self._follow()
        users = self._config.users
        if not users or request.path in OPEN_PATHS:
            return None
        given = _credentials(request.headers.get("authorization"))
        if given is None:
            return _REFUSED
        name, password = given
        hashed = users.get(name)
        # The hash is part of the key: a changed password is checked again.
        material = b"\0".join((name.encode(), password, hashed or b""))
        key = hmac.digest(self._salt, material, hashlib.sha256)
        with self._lock:
            if key in self._checked:
                self._checked.move_to_end(key)
                return None if self._checked[key] else _REFUSED
            if self._checking >= _WAITING:
                return _REFUSED
            self._checking += 1
        # For an unknown name another user's hash is checked, which takes as long.
        against = hashed or next(iter(users.values()))
        is_user = hashed is not None
        return self._pool.submit(self._check, key, password, against, is_user=is_user)

    def close(self) -> None:
        """Stop the thread that checks passwords."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def admits_certificate(self, certificate: Mapping[str, object] | None) -> bool:
        """Return whether a verified certificate of a client has a required name."""
        tls = self._config.tls
        if tls is None or not tls.allowed_sans:
            return True
        names = (certificate or {}).get("subjectAltName", ())
        given = {str(name) for _, name in names}  # type: ignore[attr-defined]
        return not given.isdisjoint(tls.allowed_sans)

    def _check(
        self, key: bytes, password: bytes, hashed: bytes, *, is_user: bool
    ) -> Response | None:
        try:
            assert self._bcrypt is not None  # noqa: S101 - there are users
            right = bool(self._bcrypt.checkpw(password, hashed)) and is_user
        # A zero byte, or a hash that only looks like one; bcrypt's own failures are no
        # Exception. If the check fails, access is denied.
        except BaseException:  # noqa: BLE001 - on a thread of ours
            right = False
        with self._lock:
            self._checking -= 1
            self._checked[key] = right
            if len(self._checked) > _REMEMBERED:
                # Guesses first: known clients must not wait for unknown ones.
                wrong = (key for key, is_right in self._checked.items() if not is_right)
                del self._checked[next(wrong, next(iter(self._checked)))]
        return None if right else _REFUSED

    def _follow(self) -> None:
        with self._lock:
            stamps = self._stamps.items()
            if any(_file_stamp(path) != stamp for path, stamp in stamps):
                self._renew()

    def _renew(self) -> None:
        try:
            self._read()
        except (WebConfigError, CommandError) as error:
            self._failed = True
            log.error(  # noqa: TRY400 - the message says it, no traceback helps
                "%s; keeping the previous configuration", error
            )
        else:
            if self._failed:
                log.info("web configuration %s: loaded successfully again", self._path)
            self._failed = False

    def _read(self) -> None:
        # Files of the active configuration, and of the requested one: a certificate
        # created after the configuration that names it is a change as well. Checked
        # before they are read: a change in between is noticed at the next check.
        stamps = {path: _file_stamp(path) for path in (self._path, *self._config.files)}
        try:
            config = load(self._path)
            for path in config.files:
                stamps.setdefault(path, _file_stamp(path))
            context = config.tls.context() if config.tls else None
            self._require_protection(config)
            if config.users and self._bcrypt is None:
                self._bcrypt = _bcrypt()
        except (WebConfigError, CommandError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the rest stays
            # Its text may quote the file.
            msg = f"web configuration {self._path}: failed ({type(error).__name__})"
            raise WebConfigError(msg) from None
        finally:
            self._stamps = stamps
        self._config, self._context, self._serving = config, context, True

    def _require_protection(self, config: WebConfig) -> None:
        if not self._serving:
            return
        if (config.tls is None) != (self._config.tls is None):
            msg = f"{self._path}: enabling or disabling TLS requires a restart"
            raise WebConfigError(msg)
        if self._config.users and not config.users:
            # Perhaps the file is being written: no one asked to disable authentication.
            msg = f"{self._path}: disabling passwords requires a restart"
            raise WebConfigError(msg)


def _file_stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except (OSError, ValueError):  # being replaced, or no path at all
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _credentials(authorization: str | None) -> tuple[str, bytes] | None:
    scheme, _, encoded = (authorization or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        raw = base64.b64decode(encoded.strip(), validate=True)
        name, colon, password = raw.partition(b":")
        if not colon or len(password) > _MAX_PASSWORD:
            return None
        # Longer ones are cut there by bcrypt, in Prometheus and elsewhere.
        return name.decode("utf-8"), password[:72]
    except ValueError:  # not Base64, not ASCII, or no UTF-8 within
        return None


def _bcrypt() -> ModuleType:
    try:
        return import_module("bcrypt")
    except ImportError:
        msg = "basic_auth_users needs bcrypt: pip install 'jaxmon[web]'"
        raise CommandError(msg) from None


# OpenSSL must be given the same bytes again if it could not send all: no more at a
# time, so that what a client takes can be seen.
_RECORD = 1 << 14


class TlsTransport(Transport):
    """The socket of a new TLS client; *admits* judges its certificate or `None`."""

    sock: ssl.SSLSocket

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext,
        admits: Callable[[Mapping[str, object] | None], bool],
    ) -> None:
        super().__init__(
            context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        )
        self._admits = admits

    def handshake(self) -> None:
        """Perform the TLS handshake, check the certificate; or `OSError`."""
        with self._unblocked():
            self.sock.do_handshake()
        if not self._admits(self.sock.getpeercert()):
            raise ConnectionAbortedError

    def receive(self, size: int) -> bytes:
        """Return at most *size* bytes, ``b""`` once the client has finished sending."""
        with self._unblocked():
            return super().receive(size)

    def send(self, data: memoryview) -> int:
        """Send some of *data* and return how many bytes."""
        with self._unblocked():
            return super().send(data[:_RECORD])

    def end(self) -> None:
        """Close TLS, and send nothing more; incoming data is no longer decrypted."""
        # It waits for the client's farewell, or there never was a handshake.
        with contextlib.suppress(OSError, ValueError):
            self.sock.unwrap()
        super().end()

    @contextmanager
    def _unblocked(self) -> Iterator[None]:
        try:
            yield
        except ssl.SSLWantReadError:
            self.wants = READ
            raise BlockingIOError from None
        except ssl.SSLWantWriteError:
            self.wants = WRITE
            raise BlockingIOError from None
