"""What the programs of ranks depend on besides their code, as sidecars report it."""

from __future__ import annotations

from collections.abc import Mapping

from jaxmon.facts.reader import mapping
from jaxmon.formats.layout import clean


_MOST_SETUPS = 1024
_MOST_NAMES = 256
_LONGEST = 128


class Setups:
    """Those in the ``/job`` of a sidecar, *document*, by what its ranks call them."""

    def __init__(self, document: object) -> None:
        given = list(mapping(mapping(document).get("setups")).items())
        self._known = {name: _setup(one) for name, one in given[:_MOST_SETUPS]}

    def of(self, rank: object) -> Mapping[str, str]:
        """Return that of *rank*, as it is in the document; empty if it has none."""
        return self._known.get(str(mapping(rank).get("setup")), {})


def _setup(given: object) -> Mapping[str, str]:
    return {
        clean(str(name))[:_LONGEST]: clean(value)[:_LONGEST]
        for name, value in list(mapping(given).items())[:_MOST_NAMES]
        if isinstance(value, str)
    }
