"""
What attacks or breaks jaxmon: failures inside its own code, signals at a chosen point,
text that would do something to a terminal, and secrets as programs get and quote them.
"""

import dis
import signal
import sys
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any


ERRORS = "jaxmon_internal_errors_total"
ACTIVE = "jaxmon_hook_active"


class InjectedError(Exception):
    """What jaxmon's own code raises here."""


class Bomb:
    """A callable that counts its calls and raises."""

    def __init__(self, error: type[BaseException] = InjectedError) -> None:
        self.calls = 0
        self._error = error

    def __call__(self, *_: object, **__: object) -> Any:
        self.calls += 1
        raise self._error


HOSTILE = (
    "a\x1b[31mred\x1b]0;title\x07\x9b2J\x1b[8m\u202eesrever\u2066\u200b\u00ad"
    "\r\nError: forged\n2026-01-01 ERROR forged\x85forged\u2028forged\x0bforged\x00"
    "\x08\x7f\ud800e\u0301\u0e01\u0e49\u0e49\u0e49"
)
"""Colours, a title, bidirectional overrides, line breaks of each kind, a surrogate."""


def harmful(text: str) -> list[str]:
    """
    Return the lines of *text* that would do more than show characters in one line, or
    begin as an attacker wants.
    """
    return [
        line
        for line in text.split("\n")
        if not line.isprintable()
        or line.startswith(("forged", "Error: forged", "2026-01-01 ERROR"))
        or any(unicodedata.category(one).startswith("M") for one in line)
    ]


class Alarm(Exception):  # noqa: N818 - a time limit's, as programs have them
    """What the program's signal handler raises."""


class LikeOurs(  # noqa: N818 - see above
    AttributeError, LookupError, MemoryError, TypeError, ValueError
):
    """The same, of every builtin class that our code expects from something else."""


class LikeAFile(TimeoutError):  # noqa: N818 - see above
    """The same, as most programs have it: an `OSError`."""


# Where the interpreter looks for signals.
_AFTER = ("CALL", "RESUME", "JUMP_BACKWARD")
# CPython: the argument of RESUME from which on it does not.
_AFTER_YIELD_FROM = 2


class Points:
    """
    Counts the points of jaxmon's code at which a handler may run, as they are passed,
    and sends a signal at the one numbered *at*.
    """

    def __init__(self, at: int | None = None) -> None:
        self.passed = 0
        self.where = ""
        self._at = at
        self._before: dict[int, str] = {}
        # Python makes the bytes anew for whoever asks, a thousand times for a function.
        self._bytes: dict[int, tuple[CodeType, bytes]] = {}

    def trace(self, frame: FrameType, _event: str, _: object) -> Any:
        """Be `sys.settrace`'s function."""
        name = str(frame.f_globals.get("__name__"))
        if not name.startswith("jaxmon."):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._local

    def _local(self, frame: FrameType, event: str, _: object) -> Any:
        if event == "opcode":
            before = self._before.get(id(frame), "")
            code = frame.f_code
            if (known := self._bytes.get(id(code))) is None:
                known = self._bytes[id(code)] = code, code.co_code
            at = frame.f_lasti
            op, argument = known[1][at : at + 2]
            name = dis.opname[op]
            # Not so when what `yield from` or `await` waits for goes on.
            passes_on = name == "RESUME" and argument >= _AFTER_YIELD_FROM
            looks = not passes_on and name != "JUMP_BACKWARD_NO_INTERRUPT"
            self._before[id(frame)] = name if looks else ""
            # Nor does the interpreter look on the way from a call to a handler.
            if before.startswith(_AFTER) and name != "PUSH_EXC_INFO":
                self._pass(frame)
        elif event == "return":
            self._before.pop(id(frame), None)
            # The interpreter does not look on the way back into Python code.
            if frame.f_back is not None and id(frame.f_back) in self._before:
                self._before[id(frame.f_back)] = ""
        return self._local

    def _pass(self, frame: FrameType) -> None:
        self.passed += 1
        if self.passed == self._at:
            self.where = " < ".join(_ours(frame))
            signal.raise_signal(signal.SIGUSR1)


def _ours(frame: FrameType | None) -> Iterator[str]:
    """Yield what runs at *frame*, and what of jaxmon has called it."""
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith("jaxmon."):
            code = frame.f_code
            yield f"{code.co_filename}:{frame.f_lineno} {code.co_qualname}"
        frame = frame.f_back


@contextmanager
def alarms(kind: type[Exception] = Alarm) -> Iterator[list[Exception]]:
    """Have SIGUSR1 raise an exception of *kind*; yield those that were raised."""
    raised: list[Exception] = []

    def handle(signum: int, frame: object) -> None:
        del signum, frame
        raised.append(kind("time is up"))
        raise raised[-1]

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        yield raised
    finally:
        signal.signal(signal.SIGUSR1, before)


def run(program: Callable[[], object], at: int | None = None) -> tuple[Points, Any]:
    """
    Run *program* with a signal at the point *at*; return the points and what it raised.
    """
    points, caught = Points(at), None
    sys.settrace(points.trace)
    try:
        program()
    except Exception as error:  # noqa: BLE001 - the program's own time limit
        caught = error
    finally:
        sys.settrace(None)
    return points, caught


WORD = "Correct-Horse-7x"
_TAIL = "Battery-Staple-9"
_BLOB = "Zm9vOkNvcnJlY3QtSG9yc2UtN3g5MTIz"
_KEY = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC"
_HEX = "9f86d081884c7d659a2feaa0c55ad015"
PREFIXED = (
    "hf_" + "AbCdEf1234567890GhIjKlMnOpQr",
    "ghp_" + "AbCdEf1234567890GhIjKlMnOpQr",
    "github_pat_" + "11ABCDEFG0aBcDeFgHiJkL_mNoPqRsTuVwX",
    "AIza" + "SyA1234567890abcdefghijklmnopqrstu",
    "AKIA" + "IOSFODNN7EXAMPLE",
    "ASIA" + "IOSFODNN7EXAMPLE",
    "xoxb-" + "123456789012-AbCdEfGhIjKlMnOp",
    "glpat-" + "AbCdEf1234567890GhIj",
    "sk-" + "AbCdEf1234567890GhIjKlMn",
    "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5",
    "ya29." + "a0AfH6SMBabcdef1234567890",
    "sk-proj-" + "aB_c1-AbCdEf1234567890GhIjKlMn",
    "AIza" + "SyB_1-34567890abcdefghijklmnopqrstu",
)
_SHORT = "hunt3rS"
_PLAIN, _CAPITALS = "xyzzyfish", "XYZZYFISH"
_PIN = "840613"
_UNLIKELY = (_SHORT, _PLAIN, _CAPITALS, _PIN)
SECRETS = (WORD, _TAIL, _BLOB, _KEY, _HEX, *_UNLIKELY, *PREFIXED)
_PEM = f"-----BEGIN PRIVATE KEY-----\n{_KEY}\n-----END PRIVATE KEY-----"
_SIGNED = f"https://b.s3.amazonaws.com/k?X-Amz-Credential={PREFIXED[4]}&X-Amz-Signature={_HEX}"

ARGUMENTS = [
    # argparse, click, tyro
    ["--token", WORD],
    [f"--token={WORD}"],
    [f"--api-key={WORD}"],
    ["--api_key", WORD],
    ["--wandb-key", WORD],
    [f"--hf-token={WORD}"],
    ["--password", f"{WORD} {_TAIL}"],
    [f'--password="{WORD} {_TAIL}"'],
    ["--password", f"--{WORD}"],
    ["--password", f"-{WORD}"],
    [f"-p{WORD}"],
    ["-p", WORD],
    [f"--token:{WORD}"],
    ["--header", f"Authorization: Bearer {WORD}"],
    [f"--header=Authorization: Bearer {WORD}"],
    ["-H", f"X-Api-Key: {WORD}"],
    ["--private-key", _PEM],
    [f"--private-key={_PEM}"],
    ["--optimizer.auth.key", WORD],
    ["--user", f"me:{WORD}"],
    ["--name", WORD],
    ["--label", f"a={WORD}"],
    # hydra
    [f"+hf_token={WORD}"],
    [f"++auth.token={WORD}"],
    [f"db.password={WORD}"],
    [f"~db.password={WORD}"],
    [f"model.name={WORD}"],
    [f"+creds={{user:me,password:{WORD}}}"],
    # absl, fire
    [f"-api_key={WORD}"],
    [f"--noauth={WORD}"],
    ["login", WORD],
    ["--flagfile", f"/etc/{WORD}"],
    # as variables
    [f"API_TOKEN={WORD}"],
    [f"WANDB_API_KEY={_HEX}"],
    [f"lr={WORD}"],
    # common options with something else in them
    ["--lr", WORD],
    [f"--batch-size={WORD}"],
    ["--seed", f"12{WORD}"],
    ["--config", f"key: {WORD}"],
    # inline documents
    ["--json", f'{{"password": "{WORD}", "tail": "{_TAIL}"}}'],
    [f'--json={{"api_key":"{WORD}"}}'],
    [f"password: {WORD}"],
    ["--set", f"[{WORD}, {_TAIL}]"],
    # URLs and connection strings
    [f"https://me:{WORD}@h/x"],
    [f"https://h/x?token={WORD}"],
    [f"--db=postgres://me:{WORD}@h/x"],
    [f"postgres://me:{WORD}/{_TAIL}@h/x"],
    [f"redis://:{WORD}@h:6379/0"],
    [f"https://hooks.slack.com/services/T00/{_HEX}"],
    [f"Server=h;Database=d;User=me;Password={WORD};"],
    [f"DefaultEndpointsProtocol=https;AccountKey={_BLOB}=="],
    [f"host=h user=me password={WORD}"],
    ["--url", _SIGNED],
    [_SIGNED],
    ["--dsn", f"https://{_HEX}@sentry.example.org/1"],
    # bare
    [WORD],
    [_BLOB],
    [_HEX],
    [_PEM],
    ["--", WORD],
    *([one] for one in PREFIXED),
    *([f"--x-{n}", one] for n, one in enumerate(PREFIXED)),
]

MESSAGES = [
    f"could not connect: host=db user=bob pass={WORD}",
    f"refused by the proxy: <password>{WORD}</password>",
    # requests, urllib3, aiohttp, huggingface_hub
    f"HTTPSConnectionPool(host='h', port=443): Max retries: url: /v1/x?token={WORD}",
    f"401 Client Error: Unauthorized for url: https://h/api?key={WORD}&x={_TAIL}",
    f"{{'Authorization': 'Bearer {WORD}', 'X-Tail': '{_TAIL}'}}",
    f"Authorization: Basic {_BLOB}=",
    f"sent headers Basic {_BLOB}=",
    f"Cannot connect to host me:{WORD}@h:443 ssl:default",
    f"Invalid user token: {PREFIXED[0]}. Run `huggingface-cli login`",
    f"Proxy error for http://me:{WORD}@proxy:3128",
    f'Invalid URL "https://me:{WORD} {_TAIL}@h/x"',
    f"Set-Cookie: session={WORD}; Path=/\nX-Api-Key: {_TAIL}",
    # boto3, google-cloud, azure
    f"The AWS Access Key Id {PREFIXED[4]} does not exist",
    f"aws_secret_access_key={WORD}",
    f"expired: {_SIGNED}",
    f"AccountKey={_BLOB}==;EndpointSuffix=core.windows.net",
    f"invalid API key {WORD}",
    # psycopg, SQLAlchemy, redis
    f'connection to server at "h" failed: postgresql://me:{WORD}@h/db',
    f'invalid dsn: "host=h password={WORD} {_TAIL}"',
    f'password "{WORD}" of user "me" is wrong',
    f"redis://:{WORD}@h:6379/0 refused",
    # others
    f"cannot load {_PEM}",
    f"cannot load\n{_PEM}\nfrom a file",
    f"bad config: {{\"passwd\": \"{WORD}\", 'b': '{_TAIL}'}}",
    f"passphrase:\n  {WORD}",
    f"digest {_HEX} is wrong",
    WORD,
    f"invalid literal for int() with base 10: '{WORD}'",
    f"return character(s) in header value: '{WORD}\\n'",
    f"Command '['curl', '-H', 'Authorization: Bearer {WORD}']' returned 2",
    *(f"got '{one}' from the server" for one in PREFIXED),
    # by short names and options, of words that no other rule takes for a secret
    f"login failed, pass: {_SHORT}",
    f"db_pass={_PLAIN}; retries=3",
    f"user: bob, pass: {_PLAIN}",
    f'{{"user": "bob", "pass": "{_PLAIN}"}}',
    f"otp: {_PIN} was used before",
    f"wrong PIN: {_PIN}",
    f"Command 'mysql -uroot -p{_SHORT} db' returned non-zero exit status 1",
    f"Command '['mysql', '-p{_SHORT}', 'db']' returned non-zero exit status 1",
    f"mysqldump -p{_CAPITALS} failed",
    f"Command 'curl -u bob:{_PLAIN} https://h/x' returned non-zero exit status 22",
    f"Command '['curl', '--user', 'bob:{_PLAIN}', 'h']' returned 22",
]

STATIC = [
    f"Bearer {_PLAIN}",
    f"password={_PLAIN}",
    f"https://bob:{_PLAIN}@db.example.org/x",
    *PREFIXED[-5:],
]
