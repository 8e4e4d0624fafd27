"""What may leave a process of command lines, flags, URLs and messages."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jaxmon.host.disclosure import HIDDEN, command, document, flags, hidden, text, url
from tests.helpers.adversaries import ARGUMENTS, MESSAGES, PREFIXED, SECRETS
from tests.helpers.processes import each


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (
            ["/opt/bin/python3", "train.py", "--batch-size", "32", "--lr=3e-4"],
            "python3 train.py --batch-size 32 --lr=3e-4",
        ),
        (["python", "-m", "app.serve", "-v"], "python -m app.serve -v"),
        (["python", "-X", "dev", "-u", "a/b.py"], "python -X dev -u a/b.py"),
        (["python", "-c", "key = 'abc'", "x"], "python -c …"),
        (["python", "main.py", "train", "eval"], "python main.py train …"),
        (["python", "t.py", "--config", "a/b.yaml"], "python t.py --config a/b.yaml"),
        (["python", "t.py", "--model", "bert"], "python t.py --model …"),
        (
            ["python", "t.py", "model.lr=0.1", "+db.name=x"],
            "python t.py model.lr=0.1 +db.name=…",
        ),
        (["python", "t.py", "--seed", "-5", "-n", "3"], "python t.py --seed -5 -n …"),
        (
            ["python", "t.py", "--lr", "secret-words", "--steps", "1e4"],
            "python t.py --lr … --steps 1e4",
        ),
        (
            ["python", "-W", "ignore", "t.py", "(Fork-1)"],
            "python -W ignore t.py (Fork-1)",
        ),
        (["python t.py --key abc"], "python …"),
        # What a server runs, and nothing else of that form.
        (
            ["python", "-m", "uvicorn", "api:app", "--workers", "2"],
            "python -m uvicorn api:app --workers 2",
        ),
        (
            ["/bin/gunicorn", "-b", "me:secret", "web:app", "--auth", "me:secret"],
            "gunicorn -b … web:app --auth …",
        ),
        (["python", "t.py", "me:secret"], "python t.py …"),
        ([], ""),
    ],
)
def test_harmless_words_of_a_command_line_are_shown(given, shown):
    """The script, names of options, plain values of common ones, also twice."""
    assert command(given) == shown
    assert command(shown.split(" ") if shown else []) == shown


@each({repr(words): (words,) for words in ARGUMENTS})
def test_no_secret_of_a_command_line_is_shown(words):
    """However it is spelled, and after it was shown and split at spaces once more."""
    line = ["/usr/bin/python", "train.py", "--steps", "10", *words, "--lr=0.1"]
    whole = " ".join(line).split(" ")
    for shown in (command(line), command(whole)):
        assert not [one for one in SECRETS if one in shown]
        assert shown.startswith("python train.py --steps 10 ")
    assert command(line).endswith("--lr=0.1")
    quoted = document_without(words)
    assert not [one for one in SECRETS if one in quoted]


def document_without(words: list[str]) -> str:
    """Return the arguments as a program may print them, without what is hidden."""
    printed = f"got {words[-1]!r}"
    for one in sorted(hidden(["python", "t.py", *words]), key=len, reverse=True):
        printed = printed.replace(one, HIDDEN)
    return printed


@each({message: (message,) for message in MESSAGES})
def test_no_secret_of_a_message_is_shown(message):
    """Messages of HTTP clients, databases and clouds, which quote what they sent."""
    assert not [one for one in SECRETS if one in text(message)]


@pytest.mark.parametrize(
    "message",
    [
        "RESOURCE_EXHAUSTED: Out of memory allocating 400000000000000 bytes.",
        "dot_general requires contracting dimensions to have the same shape, got (3,)",
        "got f32[128,256] from TransformerBlock_0/MultiHeadDotProductAttention_0/query",
        "No such file or directory: /data/run_2024/step_0001",
        "token 50257 is out of range; the tokenizer has 50256 tokens",
        "gs://bucket/run/step_100: not found",
        "see https://docs.jax.dev/en/latest/errors.html#jax.errors.KeyReuseError.",
        "Argument 'x' of shape float32[3] of function step at /srv/train.py:12",
        "pass: 3 of 4, test pass: yes, forward pass: loss is nan after pass: 1.5s",
        "HLO pass: layout-assignment; 'pass': True; n_pass=3, bypass=on",
        "first_pass=True, tokens=64; user tests pass: ok",
        "gcc -pthread -pipe -port=8080 failed; find -print0",
        "docker run -p8080:80 -u 1000:1000 -u root x",
        "max_tokens=4096 exceeds the limit; token: 50257, pin: 7",
    ],
)
def test_harmless_messages_are_shown(message):
    """Errors of JAX, shapes, paths, names of modules, links to documents."""
    assert text(message) == message
    assert document(message) == message


def test_what_a_process_hides_is_in_none_of_its_messages():
    """A program quotes what it was given, in whatever words."""
    code = """
import os
from jaxmon.host.disclosure import document, text
print(text("model swordfish-large: no swordfish for bert-base"))
print(document("swordfish in bert-base"))
os.environ["SITE_TOKEN"] = "loaded-from-a-file"
print(text("got loaded-from-a-file in " + os.getcwd()))
print(text("Authorization: Bearer another"), text("sent Bearer another"))
"""
    words = ["--token=swordfish", "--model", "bert-base"]
    words += ["--header", "Authorization: Bearer swordfish"]
    assert not list(hidden(["python", "/a/secrets/t.py", "dispatch"], announced=True))
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PWD": str(Path.cwd())},
    )
    assert done.stdout.splitlines() == [
        "model …-large: no … for …",
        "… in bert-base",
        f"got … in {Path.cwd()}",
        "Authorization: … sent Bearer …",
    ]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("https://me:pass@h/x", "https://…@h/x"),
        ("pg://me:p/a@h/x", "pg://…"),
        ("https://h:8080/a/b?sig=abc", "https://h:8080/a/b?…"),
        ("gs://bucket/cache-1", "gs://bucket/cache-1"),
        ("https://h/T00/B00/aB1cD2eF3gH4", "https://h/…"),
        ("/a/local/path", "…"),
    ],
)
def test_a_url_has_host_and_plain_path(given, shown):
    """No user, password, query, nor what looks like a key."""
    assert url(given) == shown


def test_flags_have_plain_values():
    """XLA's flags change programs, and are compared; paths are those of hosts."""
    given = "--xla_gpu_autotune_level=2 --xla_dump_to=/tmp/x --xla_a=true secret words"
    assert flags(given) == "--xla_gpu_autotune_level=2 --xla_dump_to=… --xla_a=true …"
    assert flags("--token=swordfish --xla_b=1") == "--token=… --xla_b=1"


def test_documents_stay_valid():
    """JSON with secrets of all well-known forms is still JSON, with the same names."""
    planted = {str(n): message for n, message in enumerate(MESSAGES)}
    shown = document(json.dumps(planted))
    assert list(json.loads(shown)) == list(planted)
    assert not [one for one in PREFIXED if one in shown]
