"""The setups of ranks, of which those on a host usually share one: each once."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any


_DIGITS = 16


class Setups:
    """
    Attributes:
        known: setups by digest.
        size: their length as JSON.
    """

    def __init__(self) -> None:
        self.known: dict[str, dict[str, Any]] = {}
        self.size = 0

    def shared(self, rank: dict[str, Any]) -> dict[str, Any]:
        """Return *rank* with the digest of its setup, if it has one."""
        setup = rank.get("setup")
        if not isinstance(setup, dict):
            return rank
        text = json.dumps(setup, sort_keys=True)
        digest = sha256(text.encode()).hexdigest()[:_DIGITS]
        if digest not in self.known:
            self.known[digest] = setup
            self.size += len(text)
        return {**rank, "setup": digest}
