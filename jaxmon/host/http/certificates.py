"""Which certificates to trust when a command connects over TLS."""

from __future__ import annotations

import ssl
from pathlib import Path
from urllib.parse import SplitResult

from jaxmon.errors import ConfigFileError, JaxmonError
from jaxmon.host.files.bounded import require_regular


_MOST_BYTES = 16 << 20


class CertificatesError(JaxmonError, ValueError):
    """A file of certificates that cannot be used; the message names it."""


def trusted(server: SplitResult, ca_file: Path | None) -> ssl.SSLContext | None:
    """
    Return which certificates to trust; `None` if none are needed or given.

    Args:
        server: the URL.
        ca_file: CA certificates (PEM) to trust instead of the system's.

    Raises:
        CertificatesError: *ca_file* cannot be used.
    """
    # Loading the system's takes longer than a request to a server on this host.
    if server.scheme == "http" and ca_file is None:
        return None
    try:
        if ca_file is not None:  # OpenSSL would read whatever it is to its end
            require_regular(ca_file, most=_MOST_BYTES)
        return ssl.create_default_context(cafile=ca_file)
    except ConfigFileError as error:
        msg = f"cannot use the certificates in {ca_file}: {error}"
        raise CertificatesError(msg) from None
    except OSError as error:  # ssl.SSLError, too
        reason = error.strerror or "it holds no certificates"
        msg = f"cannot use the certificates in {ca_file}: {reason}"
        raise CertificatesError(msg) from None
