"""Names of the product: nouns and verbs of the field, each class one of its own."""

import ast
import re
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.helpers.processes import PRODUCT, ROOT


# Texts, and comments; names are bound in what is formatted, too.
_TEXT = re.compile(
    r"""(fr?|)(?:"{3}[\s\S]*?"{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|#.*"""
)


@pytest.fixture(scope="module")
def code() -> dict[str, str]:
    """Return each file of the product without texts: parsing all takes seconds."""
    return {
        str(path.relative_to(ROOT)): _TEXT.sub(
            lambda found: found[0] * bool(found[1]), path.read_text()
        )
        for folder in PRODUCT
        for path in sorted((ROOT / folder).rglob("*.py"))
    }


def test_no_classes_share_a_name(code):
    """A class of the product has a name that no other has."""
    names = Counter(re.findall(r"(?m)^ *class (\w+)", "\n".join(code.values())))
    assert len(names) > 500
    assert {name for name, number in names.items() if number > 1} == set()


# Pronouns and participles, which do not name what they hold.
PRONOUNS = {"another", "each", "gone", "its", "known", "one", "ones", "own", "said"}


def test_names_are_nouns_and_verbs(code):
    """What holds a route is called `route`, not `one`."""
    found = {
        f"{path}: {name}"
        for path, source in code.items()
        if re.search(rf"\b_*({'|'.join(PRONOUNS)})_*\b", source)
        for name in names_bound(ast.parse((ROOT / path).read_text()))
        if name.strip("_") in PRONOUNS
    }
    assert found == {"jaxmon/facts/walltime.py: gone"}  # a key of JSON


def names_bound(tree: ast.Module) -> Iterator[str]:
    """Yield the names that *tree* defines or assigns."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute):
            if isinstance(node.ctx, ast.Store):
                yield node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
