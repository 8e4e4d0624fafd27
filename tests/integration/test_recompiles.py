"""
A recompile is counted under its cause, and its event tells every difference.

The program provokes them one by one and counts with a listener of its own how often JAX
compiled; causes and words are the same on every supported JAX.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from jaxmon import catalog
from tests import support


pytestmark = pytest.mark.ground_truth

PROGRAM = support.ROOT / "tests" / "programs" / "recompiles.py"

ANOTHER = " (another object: compared by identity; hash it by value)"
DROPPED = (
    "compiled for these very arguments before: jax.clear_caches(), clear_cache() or a "
    "full cache dropped the program"
)
CASES: dict[str, tuple[str, list[str]]] = {
    "shape": ("shape", ["argument x: float32[3] → float32[4]"]),
    "shape_in_a_dict": (
        "shape",
        ["argument batch['x']: float32[32,128] → float32[33,128]"],
    ),
    "shape_deep_inside": (
        "shape",
        ["argument params['layers'][1]['w']: float32[2] → float32[3]"],
    ),
    "shape_of_two_arguments": (
        "shape",
        ["argument x: float32[3] → float32[4]", "argument y: float32[3] → float32[4]"],
    ),
    "shape_of_another_rank": ("shape", ["argument x: float32[] → float32[1]"]),
    "shape_without_elements": ("shape", ["argument x: float32[3,2] → float32[0,2]"]),
    "shape_among_star_args": ("shape", ["argument rest[1]: float32[3] → float32[4]"]),
    "shape_of_an_argument_by_name": (
        "shape",
        ["argument scale: float32[2] → float32[3]"],
    ),
    "shape_among_star_kwargs": ("shape", ["argument b: float32[2] → float32[3]"]),
    "shape_in_a_named_tuple": (
        "shape",
        ["argument state.params: float32[2] → float32[3]"],
    ),
    "shape_in_a_class": ("shape", ["argument model.weight: float32[2] → float32[3]"]),
    "shape_in_a_class_without_names": (
        "shape",
        ["argument pair[1]: float32[2] → float32[3]"],
    ),
    "shape_closest_to_an_older_one": ("shape", ["argument y: float32[1] → float32[2]"]),
    "dtype": ("dtype", ["argument x: float32[3] → int32[3]"]),
    "dtype_bfloat16": ("dtype", ["argument x: float32[3] → bfloat16[3]"]),
    "dtype_and_shape": ("dtype", ["argument x: float32[3] → int32[4]"]),
    "dtype_of_python_numbers": ("dtype", ["argument x: int32[] → float32[]"]),
    "dtype_of_keys": ("dtype", ["argument key: uint32[2] → key<fry>[]"]),
    "dtype_and_weak_type": ("dtype", ["argument x: weak type int32[] → float32[]"]),
    "weak_type": ("weak_type", ["argument x: weak type float32 → float32"]),
    "weak_type_now": ("weak_type", ["argument rate: int32 → weak type int32"]),
    "static_number": ("static_argument", ["static argument n: 3 → 4"]),
    "static_name": ("static_argument", ["static argument mode: 'train' → 'eval'"]),
    "static_numbers_of_one_hash": (
        "static_argument",
        ["static argument axis: -1 → -2"],
    ),
    "static_left_out": ("static_argument", ["static argument n: not given → 2"]),
    "static_by_name_now": (
        "tree_structure",
        ["static argument n: by position → by name"],
    ),
    "static_tuple": ("static_argument", ["static argument sizes: (2, 3) → (3, 2)"]),
    "static_of_another_type": ("static_argument", ["static argument flag: True → 1"]),
    "static_lambda": (
        "static_argument",
        [
            "static argument activation: <lambda> at recompiles.py:LINE → <lambda> "
            "at recompiles.py:LINE" + ANOTHER
        ],
    ),
    "static_object": (
        "static_argument",
        ["static argument config: Config(size=2) → Config(size=2)" + ANOTHER],
    ),
    "static_dataclass": (
        "static_argument",
        [
            (
                "static argument options: Options(size=2, name='net') → "
                "Options(size=4, name='net')"
            )
        ],
    ),
    "static_enum": (
        "static_argument",
        ["static argument color: Color.RED → Color.BLUE"],
    ),
    "static_object_with_an_array": (
        "static_argument",
        [
            "static argument holder: Holder(values=float64[3]) → "
            "Holder(values=float64[3])" + ANOTHER
        ],
    ),
    "static_text_too_long": (
        "static_argument",
        [
            f"static argument text: '{'a' * 78}… → '{'b' * 78}…",
        ],
    ),
    "static_partial": (
        "static_argument",
        [
            "static argument fun: partial(scaled at recompiles.py:LINE, 3) → "
            "partial(scaled at recompiles.py:LINE, 3)" + ANOTHER
        ],
    ),
    "static_self": (
        "static_argument",
        ["static argument self: Model(size=2) → Model(size=2)" + ANOTHER],
    ),
    "key_added": ("tree_structure", ["argument x: key 'mask' added"]),
    "key_removed": ("tree_structure", ["argument x: keys 'a', 'c' removed"]),
    "key_renamed": (
        "tree_structure",
        ["argument x['x']: key 'b' added, key 'a' removed"],
    ),
    "key_added_and_a_shape": (
        "tree_structure",
        ["argument x: key 'b' added", "argument x['z']: float32[1] → float32[9]"],
    ),
    "leaf_became_none": ("tree_structure", ["argument x['mask']: float32[2] → None"]),
    "none_became_a_leaf": ("tree_structure", ["argument x[1]: None → float32[2]"]),
    "tuple_longer": ("tree_structure", ["argument x: tuple of 2 → tuple of 3"]),
    "list_became_tuple": ("tree_structure", ["argument x: list of 2 → tuple of 2"]),
    "leaf_became_a_dict": (
        "tree_structure",
        ["argument x['w']: float32[1] → dict of 2"],
    ),
    "ordered_dict_became_a_dict": (
        "tree_structure",
        ["argument x: OrderedDict → dict of 1"],
    ),
    "static_part_of_a_class": (
        "tree_structure",
        ["argument x: static part 'relu' → static part 'gelu'"],
    ),
    "class_defined_again": (
        "tree_structure",
        [
            (
                "argument x: class class_defined_again.<locals>.point.<locals>.Point → "
                "another class class_defined_again.<locals>.point.<locals>.Point"
            )
        ],
    ),
    "argument_given": ("tree_structure", ["argument mask: not given → float32[3]"]),
    "argument_by_name_now": ("tree_structure", ["argument y: by position → by name"]),
    "committed": ("committed", ["argument x: uncommitted → committed to cpu:1"]),
    "committed_no_more": (
        "committed",
        ["argument x: committed to cpu:0 → uncommitted"],
    ),
    "device": ("sharding", ["argument x: cpu:0 → cpu:1"]),
    "device_of_one_argument": ("sharding", ["argument batch['x']: cpu:2 → cpu:3"]),
    "sharding": ("sharding", ["argument x: P('d') on mesh d=8 → P() on mesh d=8"]),
    "sharding_of_another_axis": (
        "sharding",
        ["argument x: P('d') on mesh d=8 → P(None, 'd') on mesh d=8"],
    ),
    "sharding_on_another_mesh": (
        "sharding",
        ["argument x: P('d') on mesh d=8 → P('a', 'b') on mesh a=2,b=4"],
    ),
    "sharding_from_one_device": (
        "sharding",
        ["argument x: uncommitted → committed to P('d') on mesh d=8"],
    ),
    "x64": ("context", ["jax_enable_x64: False → True"]),
    "x64_and_what_follows": (
        "context",
        ["jax_enable_x64: False → True", "argument x: float32[] → float64[]"],
    ),
    "matmul_precision": ("context", ["jax_default_matmul_precision: None → highest"]),
    "rank_promotion": ("context", ["jax_numpy_rank_promotion: allow → raise"]),
    "dtype_promotion": ("context", ["jax_numpy_dtype_promotion: standard → strict"]),
    "default_device": ("context", ["jax_default_device: None → cpu:2"]),
    "donated": ("options", ["jit option donated arguments: none → x"]),
    "output_sharding": (
        "options",
        ["jit option out_shardings: none → P('d') on mesh d=8"],
    ),
    "new_lambda": (
        "new_function",
        [
            (
                "a new function object at recompiles.py:LINE, `<lambda>`: jit outside "
                "the loop"
            )
        ],
    ),
    "new_lambda_and_a_shape": (
        "new_function",
        [
            (
                "a new function object at recompiles.py:LINE, `<lambda>`: jit outside "
                "the loop"
            ),
            "argument x: float32[3] → float32[4]",
        ],
    ),
    "new_partial": (
        "new_function",
        [
            (
                "a new partial at recompiles.py:LINE, `scaled`: make the partial once, "
                "outside the loop"
            )
        ],
    ),
    "new_closure": (
        "new_function",
        [
            (
                "a new function object at recompiles.py:LINE, `step`: make makes and "
                "jits it anew each time"
            )
        ],
    ),
    "jit_inside_a_method": (
        "new_function",
        [
            (
                "a new function object at recompiles.py:LINE, `step`: "
                "Model.jits_inside makes and jits it anew each time"
            )
        ],
    ),
    "new_bound_method": (
        "new_function",
        [
            (
                "a new bound method at recompiles.py:LINE, `Model.plain`: jit the "
                "method once, not at each use"
            )
        ],
    ),
    "new_pmapped_lambda": (
        "new_function",
        [
            (
                "a new function object at recompiles.py:LINE, `<lambda>`: jit outside "
                "the loop"
            )
        ],
    ),
    "caches_cleared": ("evicted", [DROPPED]),
    "function_cleared": ("evicted", [DROPPED]),
    "pmap_shape": ("shape", ["argument batch['y']: float32[8,2] → float32[8,3]"]),
    "pmap_static": ("static_argument", ["static argument n: 2 → 3"]),
}

NONE = {
    "ahead_of_time": 1,
    "effects": 0,
    "first_call": 1,
    "numpy_in_place_of_jax": 0,
    "transformed": 3,
}
"""Cases that are no recompile, and how often JAX compiles in them."""


@pytest.fixture(scope="module")
def noted() -> Any:
    """
    Run the program once and return what it printed.
    """
    return support.run_python(str(PROGRAM), env={"JAXMON_SOCKET": "0"}).json()


def test_every_case_is_expected_here(noted: Any) -> None:
    """
    What the program provokes is what the tables list.
    """
    assert set(noted["cases"]) == set(CASES) | set(NONE)


@pytest.mark.parametrize("name", CASES)
def test_the_cause_and_every_difference_are_told(noted: Any, name: str) -> None:
    """
    One compile, as JAX itself reports it, makes one event with the cause in words.
    """
    case = noted["cases"][name]
    cause, texts = CASES[name]

    assert case["compiles"] == 1
    (event,) = case["events"]
    told = [
        re.sub(r"recompiles\.py:\d+", "recompiles.py:LINE", difference["text"])
        for difference in event["differences"]
    ]
    assert (event["kind"], event["cause"], told) == ("recompile", cause, texts)
    assert event["omitted"] == 0
    assert 0 < event["seconds"] < 60


@pytest.mark.parametrize("name", NONE)
def test_what_is_no_recompile_is_none(noted: Any, name: str) -> None:
    """
    First compiles, those ahead of time or under a transformation, and calls that miss
    without compiling are no recompiles, however often JAX compiles.
    """
    case = noted["cases"][name]

    if name != "transformed":  # also what JAX runs to differentiate
        assert case["compiles"] == NONE[name]
    assert [e for e in case["events"] if e["kind"] == "recompile"] == []


def test_a_numpy_array_that_misses_is_told_once(noted: Any) -> None:
    """
    It leaves the fast path although nothing has to be compiled.
    """
    (event,) = noted["cases"]["numpy_in_place_of_jax"]["events"]

    assert event["reason"] == "numpy_argument"
    assert event["message"].startswith("argument batch['x']: a NumPy array where")


def test_effects_that_miss_every_time_are_told_once(noted: Any) -> None:
    """
    A hundred misses of a function with ordered effects make one event.
    """
    (event,) = noted["cases"]["effects"]["events"]

    assert event["reason"] == "effects"
    assert "ordered effects" in event["message"]


def test_counters_equal_the_events(noted: Any) -> None:
    """
    Every recompile told is counted under its cause, and no other.
    """
    told = Counter((function, cause) for function, cause in noted["told"])
    counted = {
        (sample.labels["function"], sample.labels["cause"]): sample.value
        for family in text_string_to_metric_families(noted["page"])
        for sample in family.samples
        if sample.name == "jaxmon_recompiles_total" and sample.value
    }

    assert counted == told
    assert sum(told.values()) >= len(CASES)


def test_all_causes_that_exist_are_provoked() -> None:
    """
    Only what cannot be told is left without a case.
    """
    assert set(catalog.CAUSES) - {cause for cause, _ in CASES.values()} == {"unknown"}
