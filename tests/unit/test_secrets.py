"""What must not get into a bundle: secrets on command lines and in texts."""

from __future__ import annotations

import pytest

from jaxmon.report.secrets import anywhere, command_line, secrets_of


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("python train.py --token=abc", "python train.py --token=[secret]"),
        ("serve --api-key abc -v", "serve --api-key [secret] -v"),
        ("serve --API_KEY=abc", "serve --API_KEY=[secret]"),
        ("env DB_PASSWORD=x serve", "env DB_PASSWORD=[secret] serve"),
        ("serve --hf-token abc --steps 10", "serve --hf-token [secret] --steps 10"),
        ("run --db=pg://me:pass@h/x", "run --db=pg://me:[secret]@h/x"),
        ("run --key-file /etc/key", "run --key-file /etc/key"),
        ("python train.py --steps 1000", "python train.py --steps 1000"),
        ("run hf_abcdefghijklmnopqrst", "run [secret]"),
        ("serve --token --verbose", "serve --token --verbose"),
    ],
)
def test_values_that_look_like_secrets_are_hidden(given, shown):
    """Options, variables, passwords in URLs and well-known tokens; nothing else."""
    assert command_line(given) == shown


def test_secrets_of_a_command_line_are_hidden_everywhere():
    """A program may print or export what it was started with."""
    secrets = secrets_of("serve --token=correct-horse --password abc")

    assert secrets.redacted("got correct-horse") == "got [secret]"
    # Three characters occur in ordinary words.
    assert secrets.redacted("abc") == "abc"


def test_well_known_tokens_are_hidden_in_any_text():
    """An error message may quote a URL with a password."""
    text = anywhere("cannot reach https://me:pa55@h/x with AKIAABCDEFGHIJKLMNOP")

    assert text == "cannot reach https://me:[secret]@h/x with [secret]"
