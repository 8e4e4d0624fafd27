"""JSON of others."""

import json

import pytest

from jaxmon.host.formats import json_text
from jaxmon.host.formats.json_text import MAX_DEPTH, parse


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


@pytest.mark.parametrize(
    "text",
    [
        *('""', "0", "-1.5e300", "null", "[]", '{"a": {"a": [1, "b"]}}', '"\\ud800"'),
        *(nested(MAX_DEPTH), "9" * 300, "18446744073709551616"),
    ],
)
def test_what_json_says(text):
    """As text and as bytes, with a byte order mark or without."""
    for form in (text, text.encode(), b"\xef\xbb\xbf" + text.encode()):
        assert parse(form) == json.loads(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON: line 1, column 1"),
        ("{\n]", "not JSON: line 2, column 1"),
        ("\ufeff", "not JSON"),
        (b"[\xff]", "byte 1 is not UTF-8"),
        ("[]".encode("utf-16"), "not UTF-8"),
        ("NaN", "NaN is not a number"),
        ("[-Infinity]", "-Infinity is not a number"),
        ('{"a": 1e999}', "a number is too large"),
        ("[-1e999]", "a number is too large"),
        ("9" * 5000, "a number has 5000 digits"),
        ('{"a": 1, "b": 2, "a": 3}', "has a duplicate key 'a'"),
        ('[{"' + "k" * 5000 + '": 1, "' + "k" * 5000 + '": 2}]', "duplicate key 'kkkk"),
        (nested(MAX_DEPTH + 1), "deeper than 100 levels"),
        (nested(900), "deeper than 100 levels"),
        ("[" * 1_000_000, "deeper than 100 levels"),
        ('{"a":' * 900 + "1" + "}" * 900, "deeper than 100 levels"),
        ('[{"a":' * 1_000_000, "deeper than 100 levels"),
    ],
)
def test_what_is_refused(text, reason):
    """With one short line that says why."""
    with pytest.raises(ValueError, match=reason) as raised:
        parse(text)
    assert len(str(raised.value)) < 200
    assert "\n" not in str(raised.value)


def test_a_duplicate_key_among_many_is_found_soon():
    """In a time that grows with their number, not with its square: here, for hours."""
    keys = ",".join(f'"{number}": 0' for number in range(300_000))
    with pytest.raises(ValueError, match="duplicate key '299999'"):
        parse(f'{{{keys}, "299999": 1}}')


def test_what_comes_out_can_be_written():
    """What was read is JSON again, without words that stand for numbers."""
    value = parse('{"a": [1.7e308, -1.7e308, 5e-324, "\\u0000\\ud800"]}')
    assert parse(json.dumps(value, allow_nan=False)) == value
    assert json_text.MAX_DEPTH == 100


@pytest.mark.parametrize(
    "text", ["NaN", "-Infinity", "1e999", "-1e999", "9" * 400, "9" * 5000]
)
def test_a_number_that_is_not_known(text):
    """If the rest is useful, a non-finite number counts as unknown."""
    found = parse(
        f'{{"a": [{text}, 1, -2, 1.5, 18446744073709551616]}}', odd_numbers=True
    )
    assert found == {"a": [None, 1, -2, 1.5, 18446744073709551616]}
    assert isinstance(found["a"][1], int)
