"""
What may leave a process of command lines, flags, URLs and messages of exceptions.

Nothing knows what a secret looks like. So it is listed what is shown: of a command line
its script or module, names of options, and plain values of common ones; of a URL its
host and a plain path. A message of an exception is prose. It loses what looks like a
secret or follows a word that announces one, and whatever else this process's command
line hides. Other documents have no secrets of well-known forms, and none that a name on
the command line or in the environment announces.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence


HIDDEN = "…"

# Options whose values are shown if they are plain, by the last part of their name.
_COMMON = (
    r"(?:(?:accum|eval|log|max|num|save|train|warmup)-)?(?:steps|every)|lr|learning-rate"
    r"|(?:(?:eval|global|micro|per-device)-)?batch(?:-size)?|(?:num-)?epochs?|warmup"
    r"|(?:n-|num-)?(?:devices|heads|hosts|layers|nodes|processes|shards|workers)"
    r"|(?:d-|hidden-|embed-)?(?:model|dim|size)|(?:image|vocab|world)-size|depth|width"
    r"|(?:max-|sequence-|seq-)len(?:gth)?|max-seq-len|grad-accum|dropout|weight-decay"
    r"|momentum|dtype|precision|device|platform|dp|fsdp|pp|tp|rank|local-rank|nproc"
    r"|process-id|port|requests|rounds|iter(?:ation)?s|sizes|seed|seconds|sleep|timeout"
    r"|debug|verbose|log-level|config(?:-file|-name|-path)?"
)
_NUMBER = r"[+-]?\d{1,12}(?:\.\d{0,8})?(?:e[+-]?\d{1,3})?"
_PLAIN = (
    rf"(?i){_NUMBER}(?:[x,]{_NUMBER}){{0,7}}|true|false|yes|no|on|off|none|auto|cpu|gpu"
    r"|cuda|tpu|b?float\d{1,2}|b?f(?:p?8|p?16|p?32|p?64)|u?int\d{1,2}|debug|info"
    r"|warning|error|[\w./-]{1,80}\.(?:gin|json|py|toml|ya?ml)"
)
_VERBS = frozenset(
    ("bench", "eval", "evaluate", "fit", "infer", "predict", "run", "serve", "train")
)
# Of what serves an application, it is what runs.
_SERVERS = frozenset(("daphne", "granian", "gunicorn", "hypercorn", "uvicorn"))
_APPLICATION = r"[A-Za-z_][\w.]{0,60}:[A-Za-z_]\w{0,40}"
_OPTION = r"(?s)(--|\+{0,2}|-)([A-Za-z_][\w.-]{0,59})(=?)(.*)"
# Options of Python that are followed by a value.
_OF_PYTHON = ("-W", "-X", "--check-hash-based-pycs")
_NO_VALUE = r"-[A-Za-z]{1,4}"
_FILE = r"[\w./+~-]{1,200}"
_PROCESS = r"\([\w.:-]{1,60}\)"

# What announces a secret, in names and in prose. Settings of tokens are none.
_SETTING = (
    r"[\w.-]{0,40}[\"'\\]{0,8}\s?[:=]\s?"
    r"(?:\d{1,9}|true|false|none|b?float\d{1,2}|u?int\d{1,2})(?!\w|[.-]\w)"
)
_NAME = (
    r"(?:pass(?:wor[dt]|wd|phrase|code)|pwd|secret|credential|authori[sz]ation"
    rf"|token(?!iz|{_SETTING})"
    r"|(?:api|access|account|auth|encryption|private|shared|signing|ssh|webhook)"
    r"[ _.-]?key|cookie|dsn|connection[ _-]?string|x-[\w-]{1,40}-key)"
)
_NAMED = rf"(?i){_NAME}|(?:^|[\W_])(?:auth|key|pin|header)(?:[\W_]|$)"
# Words that prose has, too, announce less: `pass: 3 of 4`, `-u 1000:1000`.
_QUOTE = r"[\"'\\]{0,8}"
_USER = r"\buser(?:name)?\s?[:=]\s?\S{1,60}[\s,;/]{1,4}(?:and )?"
_COMMON_WORD = r"(?!\d{1,3}\b|(?:true|false|none|yes|no)\b)"
_MIXED_WORD = r"(?!\d)(?=[^\s\"',;]*\d|[^\s\"',;]*[!#$^&*~%@]\w)[^\s\"',;]{5,}"
_ANNOUNCED = (
    rf"(?i){_NAME}[\w.-]{{0,40}}{_QUOTE}\s{{0,8}}[:=]{{1,2}}\s*(?P<a>\S[^\n]*)"
    r"|\b(?:bearer|passwor[dt]|passwd|passphrase|credentials?|secret"
    r"|(?:api|access|private)[ _-]?key)\s+(?P<b>\S[^\n]*)"
    r"|\bbasic\s+(?P<c>(?=\S*(?-i:[A-Z\d=]))\S{6,})"
    rf"|(?:(?<![a-z])(?:otp|pass|pin|sig)={_COMMON_WORD}|<{_NAME}>)\s*(?P<d>\S[^\n]*)"
    rf"|(?<![a-z])(?:otp|pin){_QUOTE}\s?:\s*(?P<e>\d{{4,}})"
    rf"|{_USER}pass{_QUOTE}\s?:\s*(?P<f>\S[^\n]*)"
    r"|[\"']pass\\?[\"']\s?:\s*\\?[\"'](?P<g>[^\n]*)"
    rf"|(?<![a-z])pass\s?:\s*(?P<h>{_MIXED_WORD})"
    r"|(?<![\w-])-p(?P<i>(?!\d[\d.:,]*\b|rint0|(?-i:[a-z_-]+)[=:])"
    r"(?=\S*(?-i:[A-Z\d]))[^\s\"',]{4,})"
    r"|(?<![\w-])(?:-u|--user)[\s=\"',]{0,5}[^\s:\"']{1,60}:(?!\d+(?:[\s\"']|\Z))(?P<j>[^\s\"']+)"
)
_PEM = r"-----BEGIN [^\"]*?(?:-----END[^\"\n-]*-----|(?=\")|\Z)"
_SCHEME = r"[A-Za-z][A-Za-z\d+.-]{0,20}$"
_REST = r"[^\s\"'<>\\`{}|]*"
_AFTER_URL = ".,:;)]"
_HOST = r"[\w.-]+(?::\d{1,5})?|\[[\da-fA-F:.]+\](?::\d{1,5})?"
_TOKENS = (
    *("hf_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "npm_"),
    *("pypi-", "dckr_pat_", "whsec_", "sk-", "sk_live_", "sk_test_", "rk_live_"),
    *("xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-", "ya29.", "SG.", "AIza", "AKIA"),
    *("ASIA", "AGE-SECRET-KEY-", "eyJ", "sk-proj-", "sk-svcacct-"),
)
# No names begin so.
_CERTAIN = ("AIza", "glpat-", "sk-proj-", "sk-svcacct-", "ya29.")
_AFTER_PREFIX = r"(?:(?=[\w.-]{0,80}[A-Z\d])[A-Za-z\d-]{12}|[A-Za-z\d]{16})[\w.-]*"
# Digits and letters by turns: digests and keys, no names.
_RANDOM = (
    r"(?<![A-Za-z\d])(?=[A-Za-z\d]{10})[A-Za-z]*\d+[A-Za-z]+\d+[A-Za-z][A-Za-z\d]*"
)
_WORD = r"[A-Za-z\d+/_=-]{16,}"
# In quotes, or a whole message, as of a `KeyError`: characters of four kinds. Of paths,
# shapes and calls the like is common.
_MIXED = (
    r"(?s)(?P<start>['\"]|\A)(?=[^\s'\"]*[a-z])(?=[^\s'\"]*[A-Z])(?=[^\s'\"]*\d)"
    r"(?=[^\s'\"]*[-!#$^&*+~%@])[^\s'\"()/]{8,}(?P<end>(?:\\[nr]|\s)*['\"]|\Z)"
)
_ADDRESS = rf"(?:(?<!\S)|(?<={HIDDEN}))[^\s@{HIDDEN}]*[^\s(,@{HIDDEN}]@[^\s@]\S*"
_PARTS = r"[\s\"'{}\[\](),;:=@/?&]+"
# Anything shorter occurs in ordinary words.
_LEAST = 6
# Of a longer one, as values of arguments are cut.
_BEGINNING = 32


def command(words: Sequence[str]) -> str:
    """Return *words* as they may be shown; its result, split, shows no more."""
    return " ".join(_merged(shown for shown, _ in _command(words)))


def own_command() -> str:
    """
    Return this process's command line as it may be shown, without the directory of the
    interpreter; if multiprocessing started it, the program's, and its name.
    """
    interpreter, *arguments = _own_words()
    name = _multiprocessing_name()
    suffix = [] if name is None else [f"({name})"]
    words = [os.path.basename(interpreter), *arguments, *suffix]  # noqa: PTH119 - likewise
    return command(words)


def own_script() -> str:
    """
    Return the path of the script that this process runs, or the name of its module;
    neither is to be shown.
    """
    words = iter(_own_words()[1:])
    for word in words:
        if word in {"-c", "-m"}:
            return word if word == "-c" else next(words, "")
        if word in _OF_PYTHON:
            next(words, "")
        elif not word.startswith("-"):
            with contextlib.suppress(OSError):  # its directory is no more
                return os.path.abspath(word)  # noqa: PTH100 - a text, no file
            return word
    return ""


def _own_words() -> list[str]:
    """Return the command line; if multiprocessing started it, the program's."""
    interpreter, *arguments = sys.orig_argv or [""]
    inner = any("multiprocessing." in word for word in arguments)
    if inner and _multiprocessing_name() is not None:
        # What started it; `multiprocessing` has given it the program's arguments.
        script, *rest = sys.argv or [""]
        directory, name = os.path.split(script)
        package = os.path.basename(directory)  # noqa: PTH119 - a text, no file
        main = ["-m", package] if name == "__main__.py" and package else [script]
        arguments = [*main, *rest]
    return [interpreter, *arguments]


def flags(value: str) -> str:
    """Return the *value* of a variable like ``XLA_FLAGS``; no paths, no files."""
    return " ".join(_merged(map(_flag, value.split())))


def variable(name: str, value: str) -> str:
    """Return the *value* of an environment variable that is known to be harmless."""
    return HIDDEN if re.search(_NAMED, name) else forms(value)


def url(address: str) -> str:
    """Return the URL *address* with scheme, host and path, if these are plain."""
    return _urls(address) if "://" in address else HIDDEN


def text(message: str) -> str:
    """Return *message*, of an exception, without what may be a secret."""
    return _unannounced(without(message, _hidden_here()))


def value(shown: str, name: str = "") -> str:
    """
    Return a value of the program's, as code, without what may be a secret; a text of
    which *name* announces one is hidden whole. Unlike in messages, names like
    ``'Llama-3-8B'`` are shown, and what the command line has under harmless names.
    """
    return _value(shown, name, _hidden_here(announced=True))


# A tree may have one static part at thousands of nodes.
@functools.lru_cache(maxsize=100)
def _value(shown: str, name: str, hidden_values: tuple[str, ...]) -> str:
    if re.search(_NAME, name, re.IGNORECASE) and re.match("b?['\"]", shown):
        return HIDDEN
    return _unannounced(without(shown, hidden_values), quoting=False)


def error(exception: BaseException) -> str:
    """Return class and message of an exception, as `text` does."""
    return f"{type(exception).__name__}: {text(str(exception))}"


def document(content: str) -> str:
    """Return *content* without secrets of well-known forms, or announced by a name."""
    return forms(without(content, _hidden_here(announced=True)))


def forms(content: str) -> str:
    """Return *content* without secrets of well-known forms: URLs, PEM keys, tokens."""
    if "-----BEGIN " in content:
        content = re.sub(_PEM, HIDDEN, content)
    if "://" in content:
        content = _urls(content)
    for prefix in _TOKENS:
        if prefix in content:
            after = r"[\w-]{12}[\w.-]*" if prefix in _CERTAIN else _AFTER_PREFIX
            pattern = rf"(?<![A-Za-z\d]){re.escape(prefix)}{after}"
            content = re.sub(pattern, HIDDEN, content)
    return content


def hidden(words: Sequence[str], *, announced: bool = False) -> Iterator[str]:
    """
    Yield what `command` hides of *words*, as far as it does not occur in ordinary text;
    if *announced*, only what looks like a secret or has a name that announces one.
    """
    before = ""
    for shown, word in _command(words):
        if HIDDEN in shown and word != HIDDEN:
            match = re.match(r"[-+]*([A-Za-z_][\w.-]*)=", word)
            value = word[match.end() :] if match else word
            name = match[1] if match else before
            is_secret = bool(re.search(_NAMED, name)) or _unannounced(value) != value
            if is_secret or not announced:
                yield from _pieces(value, is_secret=is_secret)
        before = word if word.startswith("-") else ""


def hidden_variables(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the values of *environ* whose names announce a secret, and passwords."""
    for name, value in environ.items():
        if name in ("PWD", "OLDPWD"):
            continue
        if re.search(_NAMED, name) or re.search(r"://[^/\s]+:[^/\s]+@", value):
            yield from _pieces(value, is_secret=True)


def without(content: str, values: Iterable[str]) -> str:
    """Return *content* without *values*, of which the longest come first."""
    for value in values:
        if value in content:
            content = content.replace(value, HIDDEN)
    return content


def _hidden_here(*, announced: bool = False) -> tuple[str, ...]:
    """Return what this process has to hide, the longest first."""
    # Programs read files of variables when they start.
    return _hidden(tuple(sys.orig_argv), len(os.environ), announced=announced)


@functools.lru_cache(maxsize=2)
def _hidden(words: Sequence[str], _: int, *, announced: bool) -> tuple[str, ...]:
    found = {*hidden(words, announced=announced), *hidden_variables(os.environ)}
    return tuple(sorted(found, key=lambda value: (-len(value), value)))


def _pieces(value: str, *, is_secret: bool) -> Iterator[str]:
    """Yield *value*, and those parts that may be quoted by themselves."""
    # Without what announces a secret, `text` would not see the next one.
    names = rf"(?i)[\w.-]{{0,12}}(?:{_NAME}|auth|basic|bearer|key|pin|header)s?"
    parts = [part for part in re.split(_PARTS, value) if not re.fullmatch(names, part)]
    if not is_secret:  # others are words
        parts = [of for of in parts if re.search(r"\d[a-zA-Z]|[a-z][A-Z\d]", of)]
    for piece in {value, *parts, value[:_BEGINNING]}:
        if len(piece) >= _LEAST and not re.fullmatch(_PLAIN, piece):
            yield piece
            yield json.dumps(piece)[1:-1]


def _multiprocessing_name() -> str | None:
    """Return the name of a process that multiprocessing started, `None` for another."""
    module = sys.modules.get("multiprocessing.process")
    if module is None or module.parent_process() is None:
        return None
    return str(module.current_process().name)


def _merged(words: Iterable[str]) -> Iterator[str]:
    last = ""
    for word in words:
        if not word == last == HIDDEN:
            yield word
        last = word


def _command(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    if not any(words):
        return
    # A process that sets its title has one word.
    program, gap, rest = words[0].partition(" ")
    name = program.rpartition("/")[2]
    yield (name if re.fullmatch(_FILE, name) else HIDDEN), name
    left = list(words[1:])
    if gap:
        yield HIDDEN, rest
    elif "python" in name:
        for shown, name in _interpreter(left):
            yield shown, name
    yield from _arguments(left, serves=name.rpartition("/")[2] in _SERVERS)


def _interpreter(left: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the words up to the script or module, and remove them."""
    while left:
        word = left.pop(0)
        if word == "-c":
            yield word, word
            yield HIDDEN, HIDDEN
            del left[:1]
            return
        if word == "-m" or word in _OF_PYTHON:
            yield word, word
            word, ends = (left.pop(0) if left else ""), word == "-m"
        else:
            ends = not re.fullmatch(_NO_VALUE, word)
        plain = re.fullmatch(_FILE if ends else r"[\w.:=/-]{1,80}", word)
        yield (word if plain and forms(word) == word else HIDDEN), word
        if ends:
            return


def _arguments(words: Sequence[str], *, serves: bool) -> Iterator[tuple[str, str]]:
    option = ""
    for index, word in enumerate(words):
        shown, after = _argument(word, option)
        is_process = index == len(words) - 1 and re.fullmatch(_PROCESS, word)
        is_verb = index == 0 and word in _VERBS
        is_served = serves and not option and re.fullmatch(_APPLICATION, word)
        yield (word if is_process or is_verb or is_served else shown), word
        option = after


def _argument(word: str, option: str) -> tuple[str, str]:
    """Return *word*, after *option*, as shown, and the option that takes a value."""
    if option and _is_common(option) and re.fullmatch(_PLAIN, word):
        return word, ""
    match = re.fullmatch(_OPTION, word)
    if match is None or (option and re.search(_NAMED, option)):
        return HIDDEN, ""
    dashes, name, sign, value = match.groups()
    given = sign or (dashes and value)
    shown, after = HIDDEN, ""
    if forms(name) != name or re.search(_RANDOM, name):
        pass
    elif dashes == "-" and len(name) > 1 and not _is_common(name):  # -pSECRET
        shown = f"-{name[0]}{HIDDEN}"
    elif sign and _is_common(name) and re.fullmatch(_PLAIN, value):
        shown = word
    elif given:
        shown = f"{dashes}{name}{sign}{HIDDEN}"
    elif dashes.startswith("-"):
        shown, after = word, name
    return shown, after


def _is_common(name: str) -> bool:
    last = name.rpartition(".")[2].replace("_", "-").lower()
    return re.fullmatch(_COMMON, last) is not None


def _flag(word: str) -> str:
    match = re.match(r"--[a-z\d_]{1,80}(?:=|$)", word)
    if match is None:
        return HIDDEN
    value = word[match.end() :]
    plain = re.fullmatch(r"[\w.,:+-]{0,100}", value) and _unannounced(word) == word
    return word if plain else match[0] + HIDDEN


def _unannounced(message: str, *, quoting: bool = True) -> str:
    """Return *message* without secrets, whatever is known; it may be *quoting* some."""
    message = re.sub(_ANNOUNCED, _after_name, forms(message))
    message = re.sub(_ADDRESS, HIDDEN, message)
    if quoting:
        message = re.sub(_MIXED, rf"\g<start>{HIDDEN}\g<end>", message)
    return re.sub(_WORD, _unless_random, message)


def _after_name(match: re.Match[str]) -> str:
    return match[0][: match.start(match.lastgroup or 0) - match.start()] + HIDDEN


def _unless_random(match: re.Match[str]) -> str:
    return HIDDEN if re.search(_RANDOM, match[0]) else match[0]


def _urls(content: str) -> str:
    first, *others = content.split("://")
    shown = [first]
    # By what precedes it, as a search for a scheme would take longer.
    for before, piece in zip((first, *others), others, strict=False):
        match = re.match(_REST, piece)
        if match is None or re.search(_SCHEME, before[-21:]) is None:
            shown.append(piece)
        else:
            rest = match[0].rstrip(_AFTER_URL)
            shown.append(_address(rest) + piece[len(rest) :])
    return "://".join(shown)


def _address(rest: str) -> str:
    """Return what follows the scheme of a URL as it may be shown."""
    place = re.split(r"[?#]", rest, maxsplit=1)[0]
    tail = rest[len(place) :]
    authority, slash, path = place.partition("/")
    user, at, host = authority.rpartition("@")
    # A password may contain any of these.
    if "@" in path + tail or (host and not re.fullmatch(_HOST, host)):
        return HIDDEN
    if not all(map(_is_plain, path.split("/"))):
        path = HIDDEN
    if tail and not (tail[0] == "#" and _is_plain(tail[1:])):
        tail = tail[0] + HIDDEN
    return f"{HIDDEN if user else ''}{at}{host}{slash}{path}{tail}"


def _is_plain(segment: str) -> bool:
    plain = re.fullmatch(r"[\w.-]{0,60}", segment) and forms(segment) == segment
    return bool(plain) and not re.search(_RANDOM, segment)
