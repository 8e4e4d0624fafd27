"""Files and modules that documents, docstrings and comments name are there."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.helpers.processes import PRODUCT, ROOT, each


FOLDERS = (
    *("alerts", "benchmarks", "dashboards", "docs", "examples", "exporters", "jaxmon"),
    *("runbooks", "tests", "tools"),
)
FILES = [
    path.relative_to(ROOT)
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*")
    if "__pycache__" not in path.parts
]
# As text says it: from any directory above it.
NAMED = {
    "/".join(path.parts[start:]) for path in FILES for start in range(len(path.parts))
} | {*FOLDERS}
# The history names what there was.
DOCUMENTS = [
    *("CONTRIBUTING.md", "README.md", "SECURITY.md"),
    *(str(path) for path in FILES if path.suffix == ".md"),
]
# Other projects have tests, too, which one of the tools runs.
SOURCES = [
    str(path)
    for path in FILES
    if path.suffix == ".py"
    and path.parts[0] in (*PRODUCT, "tools")
    and path.name != "third_party.py"
]
# Where a package is that does not lie at the root.
PLACES = {
    path.name: path.parent for one in PRODUCT for path in (ROOT / one).glob("jaxmon_*")
}
SPAN = re.compile(r"`{1,2}([\w./-]+)`{1,2}")
PATH = re.compile(r"(?<![\w./-])[\w-]+(?:/[\w.-]+)*/[\w-]+\.(?:md|py|toml|yaml)\b")
# Of programs that jaxmon observes, placeholders, and what was decided against.
EXAMPLES = re.compile(r"(train|script|test_(it|data|model|x))\.py|jaxmon\.exporters?")
# Names of figures in trackers, and of attributes of spans, look like ours.
ELSEWHERE = "".join(
    path.read_text()
    for pattern in ("agent/trackers.py", "otel/traces/*.py")
    for path in sorted((ROOT / "jaxmon").glob(pattern))
)


def is_elsewhere(name: str) -> bool:
    """Return whether *name* is what jaxmon calls something in another system."""
    word = re.split(r"[./]", name)[-1]
    return re.search(rf"\b{word}\b", ELSEWHERE) is not None


def paths(text: str) -> Iterator[str]:
    """Yield the paths in *text* that are ours, as far as their form can tell."""
    for span in SPAN.findall(text):
        ours = span.partition("/")[0] in FOLDERS and "/" in span
        if (ours or span.endswith(".py")) and not EXAMPLES.fullmatch(Path(span).name):
            yield span.rstrip("/")


def modules(text: str) -> Iterator[str]:
    """Yield the names of our modules, and of what is in them, in *text*."""
    for span in SPAN.findall(text):
        ours = re.fullmatch(r"jaxmon(_\w+)?(\.\w+)+", span)
        if ours and not EXAMPLES.fullmatch(span):
            yield span


def exists(dotted: str) -> bool:
    """Return whether *dotted* is a module of ours, or a word in one."""
    place = PLACES.get(dotted.partition(".")[0], ROOT)
    for word in dotted.split("."):
        if (place / word).is_dir():
            place /= word
        elif (place / f"{word}.py").is_file():
            place /= f"{word}.py"
        else:
            sources = place.glob("*.py") if place.is_dir() else [place]
            return any(re.search(rf"\b{word}\b", one.read_text()) for one in sources)
    return True


@each({name: (name,) for name in DOCUMENTS})
def test_documents_name_what_is_there(name: str) -> None:
    """Each of our paths and modules in a document can be opened."""
    text = (ROOT / name).read_text()
    named = [path for path in paths(text) if path not in NAMED]
    assert [path for path in named if not is_elsewhere(path)] == []
    absent = [dotted for dotted in modules(text) if not exists(dotted)]
    assert [dotted for dotted in absent if not is_elsewhere(dotted)] == []


@each({name: (name,) for name in SOURCES})
def test_sources_name_what_is_there(name: str) -> None:
    """So can those in docstrings, comments and messages of the code."""
    text = (ROOT / name).read_text()
    ours = [path for path in PATH.findall(text) if path.partition("/")[0] in FOLDERS]
    assert [path for path in ours if path not in NAMED] == []
    assert [dotted for dotted in modules(text) if not exists(dotted)] == []


def test_what_is_not_there_is_found() -> None:
    """A path or a module that moved is no longer named anywhere."""
    text = "`jaxmon/wire.py`, `sampling/part.py` and ``jaxmon.agent.elsewhere``"
    assert [path for path in paths(text) if path not in NAMED] == ["jaxmon/wire.py"]
    assert [one for one in modules(text) if not exists(one)] == [
        "jaxmon.agent.elsewhere"
    ]
