r"""
Regular expressions as Prometheus reads them: the syntax of RE2.

Python's differs. It has lookaround and backreferences, which RE2 lacks, and lacks
``\z``, ``\pL`` and ``[[:alpha:]]``. So each construct is checked here; nothing is
matched.
"""

from __future__ import annotations

import re


_MOST_REPEATED = 1000
_FLAGS = re.compile(r"\(\?(?:[imsU]+(?:-[imsU]+)?|-[imsU]+)?[:)]")
_NAMED = re.compile(r"\(\?P<[A-Za-z0-9_]+>")
_COUNT = re.compile(r"\{(0|[1-9][0-9]*)(,(0|[1-9][0-9]*)?)?\}")
_REPEAT = re.compile(r"[*+?]\??|" + _COUNT.pattern + r"\??")
_POSIX = re.compile(r"\[:(.*?):\]", re.DOTALL)
_POSIX_NAME = re.compile(
    r"\^?(?:alnum|alpha|ascii|blank|cntrl|digit|graph|lower|print|punct|space|upper"
    r"|word|xdigit)"
)
# Escapes for a set of characters, and escapes for one.
_SET = r"\\(?:[dswDSW]|[pP](?:[CLMNPSZ]|\{\^?[A-Za-z_]+\}))"
_ONE = (
    r"\\(?:[afnrtv]|x[0-9A-Fa-f]{2}|x\{0*(?:10|[0-9A-Fa-f])?[0-9A-Fa-f]{1,4}\}"
    r"|0[0-7]{0,2}|[1-7][0-7]{1,2}|[\x00-/:-@\[-`{-\x7f])"
)
_ESCAPE = re.compile(rf"{_SET}|{_ONE}|\\[AbBz]|\\Q.*?\\E", re.DOTALL)
_MEMBER = re.compile(rf"{_SET}|(?:{_ONE}|[^\\])", re.DOTALL)
_SINGLE = re.compile(rf"{_ONE}|[^\\]", re.DOTALL)
_LETTERS = {
    r"\a": "\a",
    r"\f": "\f",
    r"\n": "\n",
    r"\r": "\r",
    r"\t": "\t",
    r"\v": "\v",
}
_SAID = {
    "(?=": "a lookahead",
    "(?!": "a lookahead",
    "(?<": "a lookbehind, or a group without P",
    "(?>": "an atomic group",
    "(?(": "a condition",
    "(?#": "a comment",
    "(?P": "a backreference",
}


class PatternError(ValueError):
    """Not a valid RE2 regular expression; the message says why."""


def check(pattern: str) -> None:
    """
    Check that Prometheus accepts *pattern*.

    Raises:
        PatternError: Prometheus would reject *pattern*.
    """
    position, depth = 0, 0
    # Whether there is something to repeat, and whether it is repeated already.
    atom = repeated = False
    while position < len(pattern):
        end, kind = _next(pattern, position)
        depth += {"(": 1, ")": -1}.get(kind, 0)
        if depth < 0:
            msg = "unmatched )"
            raise PatternError(msg)
        if kind == "repeat":
            _check_repeat(pattern[position:end], atom=atom, repeated=repeated)
            repeated = True
        elif kind != "flags":
            atom, repeated = kind not in ("(", "|"), False
        position = end
    if depth:
        msg = "unclosed ("
        raise PatternError(msg)


def _next(pattern: str, position: int) -> tuple[int, str]:
    """
    Return the end of the token at *position*, and its kind: ``(``, ``)``, ``|``,
    ``flags`` for all that follows, ``repeat``, or ``atom``.
    """
    if (found := _REPEAT.match(pattern, position)) is not None:
        return found.end(), "repeat"
    character = pattern[position]
    if character == "(":
        return _group(pattern, position)
    if character == "\\":
        return _escape(pattern, position), "atom"
    if character == "[":
        return _class_end(pattern, position), "atom"
    return position + 1, character if character in "|)" else "atom"


def _check_repeat(text: str, *, atom: bool, repeated: bool) -> None:
    if not atom:
        msg = f"nothing to repeat before {text}"
        raise PatternError(msg)
    if repeated:
        msg = f"multiple repeat at {text}"
        raise PatternError(msg)
    if (count := _COUNT.match(text)) is not None:
        least = int(count[1])
        most = int(count[3] or least)
        if max(least, most) > _MOST_REPEATED or most < least:
            msg = f"invalid repeat count {text}; allowed are 0 to {_MOST_REPEATED}"
            raise PatternError(msg)


def _group(pattern: str, position: int) -> tuple[int, str]:
    """Return the same of what begins with a parenthesis."""
    if not pattern.startswith("(?", position):
        return position + 1, "("
    for known in (_NAMED, _FLAGS):
        if (found := known.match(pattern, position)) is not None:
            return found.end(), "flags" if found[0].endswith(")") else "("
    begin = pattern[position : position + 3]
    what = _SAID.get(begin, "an unknown kind of group or flag")
    msg = f"RE2, which Prometheus uses, does not support {begin}, {what}"
    raise PatternError(msg)


def _escape(pattern: str, position: int) -> int:
    """Return the end of what begins with a backslash."""
    found = _ESCAPE.match(pattern, position)
    if found is None:
        shown = pattern[position : position + 2]
        what = ", a backreference" if shown[1:].isdigit() else " here"
        msg = f"RE2, which Prometheus uses, has no {shown}{what}"
        raise PatternError(msg)
    return found.end()


def _class_end(pattern: str, position: int) -> int:
    """Return where the class that begins with a bracket ends."""
    begin = position
    position += 2 if pattern.startswith("[^", position) else 1
    first = True
    while first or not pattern.startswith("]", position):
        first = False
        if (found := _POSIX.match(pattern, position)) is not None:
            if not _POSIX_NAME.fullmatch(found[1]):
                msg = f"unknown character class {found[0]}"
                raise PatternError(msg)
            position = found.end()
            continue
        if (found := _MEMBER.match(pattern, position)) is None:
            if position < len(pattern):
                _escape(pattern, position)
                shown = pattern[position : position + 2]
                msg = f"{shown} is not allowed in a character class"
            else:
                msg = f"the class {pattern[begin : begin + 20]!r} is not closed"
            raise PatternError(msg)
        position = _range_end(pattern, found)
    return position + 1


def _range_end(pattern: str, low: re.Match[str]) -> int:
    """Return where the range that begins with *low* ends, or else *low* itself."""
    end = low.end()
    is_range = pattern.startswith("-", end) and not pattern.startswith("-]", end)
    if not is_range or end + 1 >= len(pattern) or re.match(_SET, low[0]):
        return end
    high = _SINGLE.match(pattern, end + 1)
    if high is None:
        _escape(pattern, end + 1)
    if high is None or _number(high[0]) < _number(low[0]):
        msg = f"{pattern[low.start() : end + 3]} is not a valid character range"
        raise PatternError(msg)
    return high.end()


def _number(character: str) -> int:
    """Return the number of a *character* as it is written."""
    if character.startswith(r"\x"):
        return int(character[2:].strip("{}"), 16)
    if character[1:].isdigit():
        return int(character[1:], 8)
    return ord(_LETTERS.get(character, character[-1]))
