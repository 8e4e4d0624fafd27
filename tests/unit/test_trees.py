"""The trees of arguments, without any object of the user's in them."""

from typing import Any

from jaxmon.agent.recompiles.argument_trees import names_of, parameters_of


def test_positional_arguments_have_the_names_of_the_signature() -> None:
    """What follows the named ones has a number."""

    def f(x: Any, y: Any = 1, *rest: Any, scale: Any = 1) -> None:
        pass

    parameters = parameters_of(f)

    assert names_of(parameters, 1) == ["x"]
    assert names_of(parameters, 4) == ["x", "y", "rest[0]", "rest[1]"]


def test_arguments_without_a_signature_have_a_number() -> None:
    """Builtins and callables whose signature cannot be had still have positions."""
    assert names_of(parameters_of(max), 2) == ["args[0]", "args[1]"]
    assert names_of(parameters_of(lambda x: x), 2) == ["x", "args[1]"]
