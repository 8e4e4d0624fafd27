"""Schema versions of documents, which other releases may have written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class NewerSchemaError(ValueError):
    """The document is of a later release."""


def require(document: Mapping[str, Any], newest: int, *, oldest: int = 1) -> None:
    """
    Check that this release can read *document*, not trusted, by its schema: from the
    *oldest* that it reads, 0 if a document need not have one, to the *newest*, which it
    writes.

    Raises:
        NewerSchemaError: it is of a later release.
        ValueError: it has no schema.
    """
    schema = document.get("schema", 0)
    if type(schema) is int and oldest <= schema <= newest:
        return
    msg = f"its schema is {schema!r:.20}; this jaxmon reads up to {newest}"
    if type(schema) is int and schema > newest:
        msg += ": upgrade it"
        raise NewerSchemaError(msg)
    raise ValueError(msg)
