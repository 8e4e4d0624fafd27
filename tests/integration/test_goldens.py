"""What jaxmon shows outwardly, against the texts that are kept of it."""

from importlib.metadata import version

import pytest

from tests.goldens import COMMAND, compared, gathered, tree


@pytest.mark.skipif(version("jax") != "0.10.2", reason="the texts are of JAX 0.10.2")
def test_what_is_shown_is_what_the_golden_files_hold() -> None:
    """Any other name, label, key or type fails, with a diff and a command."""
    if diff := compared(gathered()):
        pytest.fail(f"{diff}\nIf that is intended: {COMMAND}", pytrace=False)


def test_a_tree_has_keys_and_types_but_no_data() -> None:
    """Names that are data are left out, and so is what only a document drops."""
    functions = {
        "__main__.f": {"calls": 3, "errors": []},
        "__main__.g": {"calls": None, "errors": [{"kind": "oom", "fatal": True}]},
    }
    document = {"functions": functions, "notes": ["busy"], "leaks": []}
    assert tree("debug-functions", document).splitlines() == [
        "functions.*.calls: null | number",
        "functions.*.errors[].fatal: bool",
        "functions.*.errors[].kind: string",
        "leaks: []",
        "notes: ...",
    ]
