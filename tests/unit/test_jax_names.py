"""The table of JAX's names is whole, and says what is missing."""

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from jaxmon.agent.jaxlink.names import NAMES, RELEASES, Name, missing, present
from jaxmon.catalog import Metric
from tests.helpers.processes import ROOT
from tools import compat


AGENT = ROOT / "jaxmon" / "agent"
DOOR = AGENT / "jaxlink"
HOOKS = {
    *("calls", "misses", "compiles", "monitoring", "persistent_cache", "sampling"),
    *("transfers", "errors", "runtime_errors", "deleted_arrays", "draws"),
}


def test_a_row_says_everything() -> None:
    """Each name says what is lost without it, and where it was seen."""
    for name in NAMES:
        assert name.costs, name.path
        assert set(name.seen) in ({"y"}, {"y", "-"}), name.path
        assert name.hook in HOOKS | {""}, name.path
        words = [one for one in name.costs if not isinstance(one, Metric)]
        assert all(" " in one for one in words), name.path


def test_every_supported_release_has_a_column() -> None:
    """A mark for each that `make compat` runs, in each name's one row."""
    supported = {release.removesuffix(".*") for _, release in compat.MATRIX}
    assert set(RELEASES) == supported
    assert [one.path for one in NAMES if len(one.seen) != len(RELEASES)] == []
    counts = Counter(name.path for name in NAMES)
    assert [path for path, count in counts.items() if count > 1] == []


def test_a_group_has_several() -> None:
    """What one can stand in for has at least two names, of one hook."""
    groups: dict[str, list[Name]] = {}
    for name in NAMES:
        if name.group:
            groups.setdefault(name.group, []).append(name)
    assert all(len(names) > 1 for names in groups.values())
    assert all(len({one.hook for one in names}) == 1 for names in groups.values())


def test_each_name_is_used() -> None:
    """A name that no module of the agent has is a row too many."""
    modules = [one for one in AGENT.rglob("*.py") if one.parent != DOOR / "names"]
    sources = [path.read_text() for path in modules]
    unused = [n.path for n in NAMES if not any(n.word in one for one in sources)]
    assert unused == []


def test_each_private_attribute_has_a_row() -> None:
    """What the door reads of objects that are not ours is in the table."""
    known = {part for name in NAMES for part in name.path.replace(":", ".").split(".")}
    known |= {name.word for name in NAMES} | {"_src", "_getframe", "_current_frames"}
    for path in DOOR.glob("*.py"):
        found = set(foreign(path.read_text())) - known
        assert found == set(), f"{path.name} reads {', '.join(sorted(found))}"


def foreign(source: str) -> Iterator[str]:
    """Yield the private attributes that *source* reads of what it did not make."""
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Attribute)
            and node.attr.startswith("_")
            and not node.attr.startswith("__")
            and not (isinstance(node.value, ast.Name) and node.value.id == "self")
        ):
            yield node.attr


# Not internal to JAX: of Python and its modules, of the array protocol, of other
# libraries.
OTHERS = {
    *("__array_interface__", "__code__", "__dict__", "__file__", "__module__"),
    *("__name__", "__path__", "__qualname__"),
    *("__spec__", "__wrapped__", "_children", "_exception", "_fields"),
    *("_popen", "returncode"),
    "_is_gil_enabled",
    "get_current_span",
    *("clock_gettime", "co_consts", "co_names", "last_value", "ps1", "RUSAGE_THREAD"),
    *("all", "copy", "dtype", "item", "itemsize", "ndim", "shape", "size", "weak_type"),
    *("info", "native_id", "run_id", "tzinfo"),
}
# What JAX documents.
PUBLIC = {"device_set", "jax_debug_key_reuse", "memory_kind"}
# Attributes that devices of the CPU do not have, on which names are checked.
OF_OTHER_DEVICES = {"coords", "core_count", "num_cores"}


def test_each_name_that_may_be_absent_has_a_row() -> None:
    """
    What is read with a default would be missed by nothing: it is in the table, whose
    names are checked on each release.
    """
    known = {part for name in NAMES for part in re.findall(r"\w+", name.path)}
    known |= (
        {name.path.strip('"') for name in NAMES} | OTHERS | PUBLIC | OF_OTHER_DEVICES
    )
    for path in AGENT.rglob("*.py"):
        reads = {"getattr", "hasattr"} | ({"get"} if path.parent == DOOR else set())
        found = set(defaulted(path.read_text(), reads)) - known
        assert found == set(), f"{path} reads {', '.join(sorted(found))}"


def defaulted(source: str, reads: set[str]) -> Iterator[str]:
    """Yield the names that *source* reads in one of these ways, with a default."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        how = getattr(called, "id", None) or getattr(called, "attr", None)
        least = {"getattr": 3, "hasattr": 2, "get": 1}.get(str(how), 0)
        if how in reads and len(node.args) >= least:
            name = node.args[0 if how == "get" else 1]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield name.value


def marks(first: str = RELEASES[0], last: str = RELEASES[-1]) -> str:
    """Return the marks of a name that is there from *first* to *last*."""
    there = range(RELEASES.index(first), RELEASES.index(last) + 1)
    return "".join("y" if at in there else "-" for at in range(len(RELEASES)))


A = Name("jax.a", ("all of it",), marks(), hook="calls")
OLD = Name("jax.b", ("some of it",), marks(last="0.6.2"), "b")
NEW = Name("jax.c", ("some of it",), marks(first="0.8.2"), "b")
GONE = Name("jax.d", ("a little",), marks(last="0.8.2"))


def lost(version: str, has: Iterable[Name]) -> list[str]:
    """Return what is reported as missing by a JAX of *version* that has these."""
    there = {name.path for name in has}
    names = (A, OLD, NEW, GONE)
    found = missing(version, names, lambda name: name.path in there)
    return [one.names[0] for one in found]


def test_one_of_several_suffices() -> None:
    """Of a group nothing is missing where one name is there."""
    assert lost("0.12.3", [A, OLD]) == []
    assert lost("0.12.3", [A]) == ["jax.b"]


def test_what_releases_do_not_have_is_not_missing() -> None:
    """A name is missing where the releases around have it, and nowhere else."""
    assert lost("0.8.2", [A, NEW]) == ["jax.d"]
    assert lost("0.9.0", [A, NEW]) == []
    assert lost("0.13.0", [NEW]) == ["jax.a"]
    assert lost("0.4.36", [OLD]) == ["jax.a", "jax.d"]


def test_what_cannot_be_told_is_not_missing() -> None:
    """Texts and events are shown by what happens alone."""
    text = Name('"Leaked trace"', ("some of it",), marks())
    assert present(text) is None
    assert list(missing("0.12", [text])) == []
