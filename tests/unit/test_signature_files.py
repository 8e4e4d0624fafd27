"""Signatures files that are not, and buckets."""

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest

from jaxmon.agent.warm.statics import NotExportableError, described
from jaxmon.errors import SignaturesError
from jaxmon.facts.signatures import parsed, read
from jaxmon.preflight.warming import best, proposals


ARRAY = {"kind": "jax", "dtype": "float32", "shape": [4, 2]}


def document(*args: Any, **others: Any) -> dict[str, Any]:
    """Return a file with one function, with one signature for each of *args*."""
    function = {
        "function": "m.f",
        "module": "m",
        "qualname": "f",
        "parameters": ["x"],
        "signatures": [{"args": [one]} for one in args],
    }
    return {"schema": 1, "functions": [{**function, **others}]}


def deep(levels: int) -> Any:
    found: Any = ARRAY
    for _ in range(levels):
        found = {"list": [found]}
    return found


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ([], "not an object"),
        ({"schema": 2, "functions": []}, "its schema is 2"),
        ({"schema": True, "functions": []}, "its schema is True"),
        ({"schema": 1}, "functions is None"),
        (document(module="../../etc/passwd"), "not the name of a module"),
        (document(module="os;import sys"), "not the name of a module"),
        ({**document(), "main": "a/b"}, "not the name of a module"),
        (document(function=3), "not a string"),
        (document(function="x" * 1000), "at most 300 characters"),
        (document(7), "an argument of m.f is 7, not an object"),
        (document({"surprise": []}), "not an array or container"),
        (document({**ARRAY, "list": 1}), "not an array or container"),
        (document({**ARRAY, "sharding": {"axes": [4]}}), "not name and size"),
        (document({**ARRAY, "shape": [-1]}), "not a whole number"),
        (document({**ARRAY, "shape": [1 << 40]}), "not a whole number from 0 to"),
        (document({**ARRAY, "shape": [True]}), "not a whole number"),
        (document({**ARRAY, "dtype": "float32; rm"}), "a dtype of m.f"),
        (document({**ARRAY, "kind": "torch"}), "a kind of m.f"),
        (document({**ARRAY, "weak": 1}), "weak of m.f"),
        (document({**ARRAY, "device": -1}), "a device of m.f"),
        (document({"dict": [["a"]]}), "not key and value"),
        (document({"dict": {"a": ARRAY}}), "not a list"),
        (document({"namedtuple": [], "class": "os.system"}), "not module:name"),
        (document({"static": {"a": 1}}), "not a value"),
        (document({"static": {"dict": [[1]]}}), "not a value"),
        (document({"static": [{"name": "os.system"}]}), "not module:name"),
        (document({"node": [], "class": "os"}), "not module:name"),
    ],
)
def test_what_is_no_file_is_rejected(broken: Any, said: str, tmp_path: Path) -> None:
    """Whatever is not as documented is an error that says what was found."""
    file = tmp_path / "s.json"
    file.write_text(json.dumps(broken))

    with pytest.raises(SignaturesError, match="is not a signatures file") as caught:
        read(file)

    assert said in str(caught.value)


def test_a_static_secret_is_not_described() -> None:
    """What would be shown without its secret could not be compiled for."""
    with pytest.raises(NotExportableError, match="a static argument may hold a secret"):
        described(("sum", "https://host/data?token=tW9xQ27pLk"), "a static argument")


def test_a_deep_or_large_file_is_rejected(tmp_path: Path) -> None:
    """Neither nesting nor size exhausts the reader."""
    file = tmp_path / "s.json"
    file.write_text(json.dumps(document(deep(200))))
    with pytest.raises(SignaturesError, match="nested"):
        read(file)

    with file.open("wb") as sparse:
        sparse.truncate(1 << 30)
    with pytest.raises(SignaturesError, match="too large"):
        read(file)


def test_a_file_is_written_as_it_is_read() -> None:
    """What is read and written again is the same."""
    found = parsed(document(ARRAY, {"tuple": [ARRAY, None]}, {"static": [1, ["a"]]}))

    assert parsed(json.loads(json.dumps(found.as_json()))) == found


def test_buckets_are_the_best_ones() -> None:
    """No other choice of as many buckets pads less."""
    choose = random.Random(7)  # noqa: S311 - no secrets
    for _ in range(30):
        sizes = choose.sample(range(1, 40), 7)
        weights = [choose.randint(1, 9) for _ in sizes]
        for count in (1, 2, 3, 7):
            chosen = best(sizes, weights, count)
            least = min(
                padded(sizes, weights, (*some, max(sizes)))
                for some in itertools.combinations(sizes, count - 1)
            )
            assert len(chosen) <= count
            assert padded(sizes, weights, chosen) == least


def padded(sizes: list[int], weights: list[int], buckets: tuple[int, ...]) -> int:
    """Return the elements passed with *buckets*."""
    pairs = zip(sizes, weights, strict=True)
    return sum(min(b for b in buckets if b >= n) * w for n, w in pairs)


def test_padding_is_weighted_by_calls() -> None:
    """The fraction of padding is that of all elements that calls would pass."""
    found = document(
        *({**ARRAY, "shape": [size, 2]} for size in (1, 2, 8)),
    )
    for one, calls in zip(found["functions"][0]["signatures"], (6, 3, 1), strict=True):
        one["calls"] = calls

    (buckets,) = proposals(parsed(found))

    assert buckets.programs == 3
    assert buckets.weighted
    one, two, three = buckets.proposals
    passed = (6 * 1 + 3 * 2 + 1 * 8) * 2
    assert one.sizes == {"[0].shape[0]": (8,)}
    assert one.waste == pytest.approx(1 - passed / (10 * 8 * 2))
    assert two.sizes == {"[0].shape[0]": (2, 8)}
    assert two.waste == pytest.approx(1 - passed / ((9 * 2 + 8) * 2))
    assert (three.programs, three.waste) == (3, 0)


def test_dimensions_that_vary_together_are_one() -> None:
    """A batch size in two arrays is one dimension, and other types another group."""
    pairs = [
        {"tuple": [{**ARRAY, "shape": [n, 2]}, {**ARRAY, "shape": [n]}]} for n in (3, 4)
    ]
    found = proposals(parsed(document(*pairs, {**ARRAY, "dtype": "int32"})))

    (buckets,) = found
    assert list(buckets.proposals[0].sizes) == ["[0][0].shape[0]"]
    assert buckets.proposals[0].waste == pytest.approx(1 - (9 + 12) / 24)
