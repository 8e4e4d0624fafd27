"""The text of a program, with the line of the user's source beside each row."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sized
from itertools import islice
from typing import Any, NamedTuple

from jaxmon.host.formats.layout import clean
from jaxmon.preflight.compiled.costs import NOWHERE, LinePlace, place_of
from jaxmon.preflight.compiled.hlo_text import HloText
from jaxmon.preflight.profile.origins import Origins


_MOST = 20_000
_METADATA = r", metadata=\{(?:[^{}\"]|\"(?:[^\"\\]|\\.)*\")*\}"


class Listing(NamedTuple):
    """Rows of the text of *kind*, each with its place; *rest* says what is missing."""

    kind: str
    rows: list[tuple[LinePlace, str]]
    rest: str = ""

    def lines(self) -> Iterator[str]:
        """Yield rows as text; those without a known place begin with spaces."""
        width = max(
            (len(str(place)) for place, _ in self.rows if place.file), default=0
        )
        for place, row in self.rows:
            yield f"{str(place) if place.file else '':{width}}  {clean(row)}".rstrip()
        if self.rest:
            yield self.rest


def of_hlo(hlo: str) -> Listing:
    """Return the listing of a module. Raises `WireError`: it is none."""
    rows = list(islice(_hlo_rows(hlo), _MOST + 1))
    return Listing("hlo", rows[:_MOST], _rest(rows))


def of_jaxpr(document: Mapping[str, Any]) -> Listing:
    """Return the listing of a response of ``/debug/jaxpr`` on a program."""
    places = [LinePlace(str(at[0]), int(at[1])) for at in document.get("places", ())]
    rows = [
        (places[at] if 0 <= at < len(places) else NOWHERE, str(text))
        for at, text in document.get("rows", ())
    ]
    rest = _rest(rows, is_cut=bool(document.get("missing")))
    if "rows" not in document:
        rest = "JAX has let go of its jaxpr."
    return Listing("jaxpr", rows[:_MOST], rest)


def _rest(rows: Sized, *, is_cut: bool = False) -> str:
    return "The rest is left out." if is_cut or len(rows) > _MOST else ""


def _hlo_rows(hlo: str) -> Iterator[tuple[LinePlace, str]]:
    program = HloText(hlo)
    origins = Origins(program)
    places = (
        (instruction.name, place_of(origins.at(computation, key).place))
        for computation in program.computations()
        for key, instruction in computation.instructions.items()
    )
    following, is_text = next(places, None), False
    for line in hlo.split("\n"):
        # Tables of places are before all computations.
        is_text = is_text or line.startswith(("%", "ENTRY "))
        name = line.partition(" = ")[0].strip().removeprefix("ROOT ")
        place = NOWHERE
        if following is not None and name.removeprefix("%") == following[0]:
            place, following = following[1], next(places, None)
        if is_text and line:
            yield place, re.sub(_METADATA, "", line)
