"""Where an operation comes from, in programs made for it."""

from jaxmon.preflight.profile.hlo import HloProgram
from jaxmon.preflight.profile.origins import NOWHERE, Origins
from tests.helpers.traces import Code


PACKAGES = "/opt/env/lib/python3.11/site-packages"
STACKS = {
    "sum": [("/app/train.py", 7, "loss.<locals>.total"), ("/app/train.py", 30, "main")],
    "exp": [("/app/train.py", 8, "loss"), ("/app/train.py", 30, "main")],
    "layer": [
        (f"{PACKAGES}/flax/nnx/nn/linear.py", 422, "Linear.__call__"),
        ("/app/model.py", 12, "Net.__call__"),
    ],
    "library": [
        (f"{PACKAGES}/optax/_src/base.py", 5, "update"),
        ("/usr/lib/python3.11/functools.py", 9, "reduce"),
    ],
}


def code() -> Code:
    return Code(STACKS)


def origins(code: Code) -> Origins:
    return Origins(HloProgram(code.proto()))


def line(found: Origins, operation: str) -> tuple[str, int] | None:
    place = found.of(operation).place
    return None if place is None else (place.file, place.line)


def test_the_innermost_line_of_the_program_counts() -> None:
    """With the function that has it, and that of a library which it calls."""
    made = code()
    made.computation(
        made.instruction("dot.1", "dot", stack="layer", path="jit(f)/enc/dot_general"),
        made.instruction("sum.1", "reduce", stack="sum"),
        made.instruction("add.1", "add", stack="library"),
    )
    found = origins(made)

    place = found.of("dot.1").place
    assert place is not None
    assert place[:4] == ("/app/model.py", 12, "Net.__call__", "flax Linear")
    assert found.of("dot.1").path[:2] == ("enc", "dot_general")
    place = found.of("sum.1").place
    assert place is not None
    assert place[:4] == ("/app/train.py", 7, "loss.total", "")
    # None of the program: the innermost of all.
    assert line(found, "add.1") == (f"{PACKAGES}/optax/_src/base.py", 5)


def test_a_line_without_a_stack_is_used() -> None:
    """Up to JAX 0.4.35 some instructions have only that."""
    made = code()
    made.computation(made.instruction("dot.1", "dot", at=("/app/old.py", 4)))

    assert line(origins(made), "dot.1") == ("/app/old.py", 4)


def fusion(made: Code, *, elements: int) -> None:
    """Add a fusion that sums an exponential of so many *elements*."""
    inner = made.computation(
        made.instruction("p", "parameter", shape=[elements]),
        made.instruction("e", "exponential", "p", stack="exp", shape=[elements]),
        made.instruction("s", "add", "e", "e", stack="sum", shape=[4]),
    )
    made.computation(
        made.instruction("f.1", "fusion", stack="sum", shape=[4], calls=inner)
    )


def test_a_fusion_belongs_to_the_line_with_most_of_its_work() -> None:
    """Not to that of its last instruction, whose the fusion says it is."""
    made = code()
    fusion(made, elements=1000)
    found = origins(made).of("f.1")

    assert found.place is not None
    assert found.place.line == 8
    assert [place.line for place in found.others] == [7]
    assert not found.inferred


def test_a_product_is_more_work_than_what_is_done_with_its_result() -> None:
    """The work of a product grows with the dimension that is summed over."""
    made = code()
    inner = made.computation(
        made.instruction("a", "parameter", shape=[64, 512]),
        made.instruction("b", "parameter", shape=[512, 64]),
        made.instruction("d", "dot", "a", "b", stack="layer", shape=[64, 64]),
        made.instruction("t", "tanh", "d", stack="exp", shape=[64, 64]),
    )
    made.computation(made.instruction("f.1", "fusion", stack="exp", calls=inner))

    assert line(origins(made), "f.1") == ("/app/model.py", 12)


def test_an_update_in_place_is_as_much_work_as_what_is_updated() -> None:
    """A loop writes its results into a large array, piece by piece."""
    made = code()
    inner = made.computation(
        made.instruction("all", "parameter", shape=[1000, 8]),
        made.instruction("one", "parameter", shape=[8]),
        made.instruction("e", "exponential", "one", stack="exp", shape=[8]),
        made.instruction(
            *("u", "dynamic-update-slice", "all", "e"), stack="sum", shape=[1000, 8]
        ),
    )
    made.computation(made.instruction("f.1", "fusion", stack="sum", calls=inner))

    assert line(origins(made), "f.1") == ("/app/train.py", 8)


def test_an_operation_without_a_line_belongs_to_the_one_that_uses_it() -> None:
    """In a fusion that uses it, to the part that does; else to what it is made of."""
    made = code()
    inner = made.computation(
        made.instruction("p0", "parameter", shape=[999], parameter=0),
        made.instruction("p1", "parameter", shape=[9], parameter=1),
        made.instruction("e", "exponential", "p0", stack="exp", shape=[999]),
        made.instruction("r", "reshape", "p1", stack="layer", shape=[9]),
    )
    made.computation(
        made.instruction("x", "parameter"),
        made.instruction("copy.1", "copy", "x"),
        made.instruction("copy.2", "copy", "copy.1"),
        made.instruction("f.1", "fusion", "x", "copy.2", calls=inner),
        made.instruction("last", "copy", "f.1"),
    )
    found = origins(made)

    for name in ("copy.1", "copy.2"):
        assert line(found, name) == ("/app/model.py", 12)
        assert found.of(name).inferred
    assert line(found, "last") == ("/app/train.py", 8)


def test_an_operation_in_a_called_computation_belongs_to_the_call() -> None:
    """If nothing in there has a line."""
    made = code()
    inner = made.computation(made.instruction("broadcast.1", "broadcast"))
    made.computation(
        made.instruction("call.1", "call", calls=inner),
        made.instruction("add.1", "add", "call.1", stack="sum"),
    )

    assert line(origins(made), "broadcast.1") == ("/app/train.py", 7)


def test_nothing_is_said_of_what_is_not_known() -> None:
    """An unknown operation has no line; nor has one that calls itself."""
    made = code()
    made.computation(made.instruction("f.1", "fusion", calls=100))
    found = origins(made)

    assert found.of("dot.9") == NOWHERE
    assert line(found, "f.1") is None


def test_stacks_in_a_circle_end() -> None:
    """A trace is not trusted."""
    made = Code({"a": [("/app/a.py", 1, "f")]})
    made._index += made._index
    made.computation(made.instruction("dot.1", "dot", stack="a"))

    assert line(origins(made), "dot.1") == ("/app/a.py", 1)
