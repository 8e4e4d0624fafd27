"""What documents for people name exists: metrics, commands, options, files."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from itertools import takewhile
from pathlib import Path

import click
import pytest
import yaml

from jaxmon.catalog import BY_NAME
from jaxmon.catalog.values import CAUSES
from jaxmon.cli.main import COMMANDS, load
from jaxmon.settings import PREFIX, Settings
from tests.helpers.processes import ROOT, each, require_program


GENERATED = {"cli.md", "metrics.md", "settings.md"}
# Not written by hand, either.
REFERENCE = GENERATED | {"advice.md", "jax-internals.md", "json.md", "symptoms.md"}
PAGES = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "contributors").glob("*.md")]
FOLDERS = (
    *("alerts", "benchmarks", "dashboards", "docs", "examples", "exporters", "jaxmon"),
    *("runbooks", "tests", "tools"),
)
DOCUMENTS = sorted(
    path
    for pattern in (
        "*.md",
        "docs/*.md",
        "docs/contributors/*.md",
        "exporters/*/README.md",
        "examples/*.md",
        "runbooks/*.md",
    )
    for path in ROOT.glob(pattern)
    if path.name not in GENERATED
)

# Not metrics, although they look like them.
_OTHER_NAMES = {
    *("jaxmon_alerts", "jaxmon_dashboards", "jaxmon_exporter"),
    *("jaxmon_budget", "jaxmon_report"),
    # Attributes of log records.
    *("jaxmon_kind", "jaxmon_function", "jaxmon_cause", "jaxmon_details"),
    "jaxmon_number",
}
# Read by a script of ours, or given as an example of a mistake.
_OTHER_VARIABLES = {"JAXMON_TARGETS_DIR", "JAXMON_LIBTPU_PYTHON", "JAXMON_PROT"}

_BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_SUFFIX = re.compile(r"_(bucket|sum|count)$")


def files(*endings: str) -> list[Path]:
    """Return our files with these endings."""
    return [
        path
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.name.endswith(endings) and "node_modules" not in path.parts
    ]


each_document = each({str(path.relative_to(ROOT)): (path,) for path in DOCUMENTS})


@each_document
def test_metrics_are_in_the_catalogue(document: Path) -> None:
    """Names in full, abbreviated and recorded are metrics."""
    text = document.read_text()
    recorded = set(re.findall(r"\w:(jaxmon_\w+):\w", text))
    names = set(re.findall(r"(?<![\w/.-])jaxmon_\w+\b(?![*…/.])", text))
    unknown = {
        name
        for name in names - _OTHER_NAMES
        if name not in BY_NAME
        and _SUFFIX.sub("", name) not in BY_NAME
        and not (name in recorded and f"{name}_total" in BY_NAME)
    }
    assert unknown == set()
    for ending in re.findall(r"`…(_\w+)`", text):
        assert any(name.endswith(ending) for name in BY_NAME), ending


@each_document
def test_variables_are_settings(document: Path) -> None:
    """Each `JAXMON_*` variable is one of the agent, the sidecar or a script."""
    known = {PREFIX + field.name.upper() for field in fields(Settings)}
    known |= {str(one.envvar) for one in load("exporter").params if one.envvar}
    found = set(re.findall(r"\bJAXMON_[A-Z_]*[A-Z]\b", document.read_text()))
    assert found - known - _OTHER_VARIABLES == set()


@each_document
def test_commands_exist_with_their_options(document: Path) -> None:
    """Each `jaxmon` command in a block or in the text can be typed."""
    for words in commands(document.read_text()):
        command: click.Command = load(words.pop(0))
        while isinstance(command, click.Group) and words and words[0][:1] != "-":
            assert words[0] in command.commands, words
            command = command.commands[words.pop(0)]
        known = {"--help", "-h"} | {
            option
            for one in command.params
            for option in (*one.opts, *one.secondary_opts)
        }
        given = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert given <= known, words


@each({str(path.relative_to(ROOT)): (path,) for path in {*DOCUMENTS, *files(".md")}})
def test_links_lead_somewhere(document: Path) -> None:
    """Files that are linked are there, and so are the headings."""
    for target, heading in re.findall(
        r"\]\((?!\w+:)([^)#\s]*)#?([^)\s]*)\)", document.read_text()
    ):
        path = document.parent / target if target else document
        assert path.exists(), target
        assert not heading or heading in headings(path), f"{target}#{heading}"


def test_pages_that_code_names_are_there() -> None:
    """A page that a text or a comment names exists, and so does its heading."""
    found = {
        (path, *match)
        for path in files(".py", ".yaml", ".json", ".tpl", "Dockerfile", "Makefile")
        for match in re.findall(
            r"(?<![\w/.-])(docs/[\w/-]+\.md)#?([\w-]*)", path.read_text()
        )
        if "tests" not in path.parts
    }
    assert len(found) > 20
    for path, target, heading in found:
        assert (ROOT / target).exists(), (path, target)
        assert not heading or heading in headings(ROOT / target), (path, target)


def test_the_index_has_every_page() -> None:
    """Pages are few, short, and found by task."""
    index = (ROOT / "docs" / "README.md").read_text()
    linked = set(re.findall(r"\]\(([\w/-]+\.md)", index))
    names = {path.relative_to(ROOT / "docs").as_posix() for path in PAGES}
    assert names - {"README.md"} <= linked
    written = [path for path in PAGES if path.name not in REFERENCE]
    assert len(written) <= 28
    text = "".join(path.read_text() for path in (*written, ROOT / "README.md"))
    assert len(text.split()) <= 45_000


@pytest.mark.parametrize("page", ["README.md", "symptoms.md"])
@pytest.mark.parametrize(
    ("words", "target"),
    [
        (r"mute[ \w]* at night", "alerting.md#receivers"),
        (r"canary, or two releases", "dashboards.md#two-releases"),
    ],
)
def test_what_newcomers_look_for_is_found(page: str, words: str, target: str) -> None:
    """What is no symptom is found by task, from both pages that people begin at."""
    text = (ROOT / "docs" / page).read_text()
    lines = [line for line in text.splitlines() if re.search(words, line)]
    assert any(f"({target})" in line for line in lines)
    name, _, heading = target.partition("#")
    assert heading in headings(ROOT / "docs" / name)


@each_document
def test_tables_in_samples_have_the_columns_of_the_command(document: Path) -> None:
    """The heading of each table that a sample shows is made of columns in the code."""
    headings = re.findall(r"^ *([A-Z ]+  [A-Z ]+)$", document.read_text(), re.MULTILINE)
    columns = {word for line in headings for word in re.split(r" {2,}", line.strip())}
    assert {one for one in columns if f'"{one}"' not in sources()} == set()


def test_examples_are_described() -> None:
    """Each example is linked from the page about them, with the way to start it."""
    folder = ROOT / "examples"
    text = (folder / "README.md").read_text()
    examples = {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*.*")
        if path.is_file() and path.suffix not in (".md", ".pyc")
    }
    linked = set(re.findall(r"^\| \[.*?\]\((.*?)\)", text, re.MULTILINE))
    started = set(re.findall(r"`[^`\n]*\bexamples/([^`\n]+)`", text))
    assert examples == linked == started


@pytest.mark.parametrize("path", ["docs/causes.md", "runbooks/JaxmonRecompileStorm.md"])
def test_causes_are_explained(path: str) -> None:
    """Each cause of a recompile has a row of a table, and no other word has."""
    rows = re.findall(r"^ *\| (`\w+`(?:, `\w+`)*) \|", _causes(path), re.MULTILINE)
    assert sorted(re.findall(r"\w+", " ".join(rows))) == sorted(CAUSES)


def test_queries_are_promql(tmp_path: Path) -> None:
    """Promtool accepts each query in a block or in a table."""
    promtool = require_program("promtool")
    found = [query for path in DOCUMENTS for query in queries(path.read_text())]
    assert len(found) > 20
    rules = [{"record": f"r{n}", "expr": query} for n, query in enumerate(found)]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "docs", "rules": rules}]}))
    checked = subprocess.run(
        [promtool, "check", "rules", file], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr


@cache
def sources() -> str:
    """Return all of the code."""
    return "".join(path.read_text() for path in (ROOT / "jaxmon").rglob("*.py"))


def _causes(path: str) -> str:
    """Return the first table of a document whose first column is the cause."""
    found = re.search(
        r"^ *\| cause \|.*?(?=^\s*$)",
        (ROOT / path).read_text(),
        re.MULTILINE | re.DOTALL | re.IGNORECASE,
    )
    assert found is not None
    return found[0]


def commands(text: str) -> Iterator[list[str]]:
    """Yield the words after `jaxmon`, of each command in *text*."""
    lines = [
        line.strip().removeprefix("$ ")
        for kind, block in _BLOCK.findall(text)
        if kind in ("console", "sh", "text")
        for line in block.replace("\\\n", " ").splitlines()
    ]
    lines += re.findall(r"`(jaxmon [^`]+)`", _BLOCK.sub("", text))
    for line in lines:
        if found := re.match(r"(?:[A-Z_]+=\S+ )*jaxmon (\w+.*)", line):
            words = shlex.split(re.split(r"\s[|>#&]|\s{3}", found[1])[0])
            if words[0] in COMMANDS:
                yield list(takewhile(_is_ours, words))


def _is_ours(word: str) -> bool:
    """Distinguish a word for jaxmon from one for the program that it runs."""
    return word not in ("--", "-m") and not word.endswith(".py")


def queries(text: str) -> Iterator[str]:
    """Yield the PromQL in *text*."""
    yield from (
        block for language, block in _BLOCK.findall(text) if language == "promql"
    )
    for cell in re.findall(r"\| `([^`|]+)` \|$", text, re.MULTILINE):
        if re.search(r"\bjaxmon_\w+.*[<=>]|\brate\(", cell):
            yield cell


def headings(path: Path) -> set[str]:
    """Return the anchors of a document, as GitHub makes them."""
    found = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", one).lower().replace(" ", "-") for one in found}


def test_every_decision_stands_in_the_index_once() -> None:
    """The index of decisions lists each record, by its title."""
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text()
    for path in sorted(folder.glob("0*.md")):
        title = path.read_text().partition("\n")[0].removeprefix("# ")
        assert index.count(f"- [{title}]({path.name})") == 1, path.name
