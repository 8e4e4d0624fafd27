"""
DCGM's blank values: numbers that say why there is none.

DCGM has one for "nothing yet" and one each for "not found", "not supported" and "not
permitted", for integers at the top of 64 bits and for floating point from 2**47 on;
some exporters print them as if they were figures.
"""

from __future__ import annotations

import math


# A percentage, a temperature, or the bytes of a memory come nowhere near, and
# energy in mJ takes a GPU six years at 700 W.
_FIRST_BLANK = float(1 << 47)


def known(text: str) -> float | None:
    """
    Return the number that *text* shows; `None` when it is blank or no finite number.

    Raises:
        ValueError: *text* is no number at all.
    """
    value = float(text)
    return value if math.isfinite(value) and value < _FIRST_BLANK else None
