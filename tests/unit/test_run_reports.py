"""The summary of a run and its page: the same facts, bounded, harmless, no secrets."""

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from jaxmon import catalog
from jaxmon.exposition.families import Histogram, gauge, histograms
from jaxmon.facts.reader import mapping
from jaxmon.screens.html.elements import prose
from jaxmon.screens.html.page import files_of, page
from jaxmon.screens.runs import (
    MOST_BYTES,
    SCHEMA,
    Facts,
    RunError,
    build,
    parse,
    read_file,
)
from jaxmon.settings import RUNBOOKS
from tests.helpers.adversaries import HOSTILE, harmful
from tests.helpers.runs import facts, function, spread


INJECTION = "\"><script>alert(1)</script><img src=x onerror=alert(1)>'&lt;</style>"
SECRET = "correct-horse-battery"  # noqa: S105 - of no one
PATH = "a/very/deep/directory/" * 12 + "train.py"


def event(number: int, text: str, name: str = "train.step") -> dict[str, Any]:
    """Return a recompile with eight long differences."""
    return {
        "number": number,
        "time": 2e9 - number,
        "kind": "recompile",
        "function": name,
        "details": {
            "cause": "shape",
            "seconds": 0.5,
            "place": f"{PATH}:9",
            "differences": [{"text": f"{text} {n}"} for n in range(30)],
        },
    }


def full(name: str = "train.step") -> Facts:
    """Return facts that have something for every section."""
    state = {"seconds": 20.0, "error_seconds": 1.0}
    place = {"state": "compile", "place": name, "seconds": 9.0}
    period = {"seconds": 60.0, "looks": 600, "places": [place]}
    series = {"times": [2e9 - 3, 2e9 - 2, 2e9 - 1], "values": [1.0, 5.0, 2.0]}
    line = {"file": name, "line": 3, "bytes": 2e6, "arrays": 4, "function": name}
    moved = {"file": name, "line": 4, "count": 9, "seconds": 2.0, "how": "float"}
    device = {"device": "0", "kind": name, "in_use": 1e9, "peak": 2e9, "limit": 3e9}
    finished = [{"outcome": "success", "start": "warm", "count": 9, "p50_seconds": 0.1}]
    names = ("requests", "errors", "latency", "steps", "step_seconds", "compiling")
    return facts(
        {
            name: function(
                place=f"{name}:7",
                recompiles={"shape": 3},
                compiles={"compiled": 4},
                errors={"oom": 1},
                program={"model_flops": 2e9},
                flops={"achieved": 1e9},
                samples={"samples": 9, "dispatch_seconds": 0.1},
            )
        },
        events=[event(1, name, name)],
        requests={name: {"finished": finished, "in_progress": 1, "oldest_seconds": 9}},
        steps={name: {"steps": 100, "mean_seconds": 0.1}},
        queues={name: {"depth": 3, "maximum": 9}},
        time={"since_start": {**period, "states": {"compile": state, "idle": state}}},
        memory={"devices": [device]},
        allocations={"lines": [line], "time": 2e9 - 5},
        transfers={"lines": [moved]},
        cache={"enabled": True, "directory": name, "requests": {"hit": 1, "miss": 2}},
        errors={"oom_reports": [f"{name}.json"]},
        charts={
            **dict.fromkeys(names, series),
            "host_memory": series,
            "device_memory": series,
        },
        versions={"jax": name, "platform": "gpu"},
    )


class Page(HTMLParser):
    """The elements, the attributes and the text of a page, as it is read."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.headings: list[str] = []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag

    def handle_data(self, data: str) -> None:
        if self._inside != "style" and data.strip():
            self.text.append(re.sub(r"(?<=\d)\xa0|\xa0(?=\d)", " ", data))
            if self._inside == "h2":
                self.headings.append(data)

    def handle_endtag(self, tag: str) -> None:
        del tag
        self._inside = ""


HEADINGS = (
    *("Was everything all right?", "Findings", "How it went", "Where the time goes"),
    *("Requests", "Steps", "Queues", "Compile time", "Recompiles", "Programs"),
    *("Arithmetic", "Persistent cache", "Device memory", "Memory by source line"),
    *("Transfers between host and device", "Errors", "Versions and flags"),
)


def test_equal_facts_are_equal_bytes() -> None:
    """Whatever the order in which the agent counted causes, phases or packages."""

    def turned(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: turned(value[key]) for key in reversed(value)}
        return value

    one = full()
    causes = {"shape": 2, "dtype": 1}
    one = one._replace(
        overview={
            **mapping(one.overview),
            "functions": {"f": function(recompiles=causes, compiles={"compiled": 4})},
        }
    )
    other = one._replace(
        overview=turned(one.overview), environment=turned(one.environment)
    )

    assert build(one) == build(other)
    assert page(parse(build(one))) == page(parse(build(other)))


def test_the_page_has_every_section_once_findings_first() -> None:
    """A reader sees the answer, then findings, charts, and tables."""
    found = Page(files_of(full()).page)
    drawn = [name for name, _ in found.elements]

    assert found.headings == list(HEADINGS)
    assert not [text for text in found.text if "are unknown" in text]
    assert drawn.count("polyline") == 8
    assert {name for name in drawn if name in ("script", "img", "iframe", "form")} == (
        set()
    )


def test_a_page_of_nothing_is_a_page() -> None:
    """An agent that failed in all its parts still has one."""
    empty = Facts({}, {}, {}, (), "", "0", "running")
    found = Page(files_of(empty).page)

    assert "Is everything all right?" in found.text
    assert "Nothing to fix stands out." in found.text


def test_what_ended_with_an_exception_says_so() -> None:
    """Users are not all right then, whatever the requests before said."""
    crashed = full()._replace(state="crashed", families=[_started()])
    crash = "pid 7 (train.py) raised OSError: full, at train.py:6 in save."
    told = parse(build(crashed._replace(crash=crash)))
    found = parse(build(crashed))

    assert told.answer.text.startswith(f"No: {crash}")
    assert told.answer.state == "failing"

    assert found.state == "crashed"
    assert found.answer.state == "failing"
    assert found.answer.text.startswith("No: worker 0 crashed.")
    assert "crashed" in Page(page(found)).text


def test_the_likely_cause_is_below_the_answer() -> None:
    """Of each reason why users were not all right, with its line."""
    failing = Histogram(catalog.REQUEST_SECONDS, "predict", "error", "warm")
    for _ in range(20):
        failing.observe(0.1)
    families = [_started(), histograms(catalog.REQUEST_SECONDS, [failing])]
    failure = {"error": "ValueError", "where": "serve.py:41", "count": 20}
    finished = [{"outcome": "error", "start": "warm", "count": 20}]
    route = {"finished": finished, "failures": [failure]}
    found = parse(
        build(facts({}, requests={"predict": route})._replace(families=families))
    )
    (reason,) = found.answer.reasons

    assert found.answer.state == "failing"
    assert (reason.kind, reason.subject) == ("requests", "predict")
    assert "ValueError" in reason.because
    assert "serve.py:41" in reason.because
    assert reason.because in Page(page(found)).text


def _started() -> Any:
    return gauge(catalog.PROCESS_START_TIME_SECONDS, 2e9 - 60)


@pytest.mark.parametrize("name", [INJECTION, HOSTILE], ids=["markup", "terminal"])
def test_hostile_names_are_text(name: str) -> None:
    """They open no element and no attribute, and do not change the text around them."""
    harmless, files = Page(files_of(full()).page), files_of(full(name))
    found = Page(files.page)

    def shape(page: Page) -> list[tuple[str, list[str]]]:
        return [(tag, sorted(given)) for tag, given in page.elements]

    assert shape(found) == shape(harmless)
    assert harmful("\n".join(found.text).replace("\n\n", "\n")) == []
    for tag, given in found.elements:
        for key, value in given.items():
            assert not key.startswith("on"), tag
            if key in ("href", "src"):
                assert str(value).startswith(RUNBOOKS)
    assert json.loads(files.summary)["functions"][0]["name"]


def test_the_policy_is_that_of_the_style() -> None:
    """Nothing may be loaded, and of styles only the one that is there is applied."""
    text = files_of(full()).page
    policy = next(
        str(given["content"])
        for tag, given in Page(text).elements
        if given.get("http-equiv") == "Content-Security-Policy"
    )

    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "script-src" not in policy
    assert "unsafe" not in policy
    assert re.search(r"\sstyle=", text) is None


def test_secrets_of_the_command_line_are_nowhere() -> None:
    """Neither as an option, nor where the program prints them."""
    planted = full(f"step {SECRET}")
    process = {
        **mapping(planted.overview)["process"],
        "program": f"python train.py --token={SECRET}",
    }
    files = files_of(
        planted._replace(overview={**mapping(planted.overview), "process": process})
    )

    assert SECRET not in files.summary
    assert SECRET not in files.page
    assert "--token=…" in files.page
    tokens = full("hf_abcdefghijklmnopqrst at https://me:pa55word@host/x")
    assert "hf_abcdef" not in files_of(tokens).summary
    assert "pa55word" not in files_of(tokens).summary


def test_sizes_are_bounded() -> None:
    """Sixty-four functions with 200 programs each, or five hundred with long names."""

    def sized(count: int, name: str, programs: int) -> None:
        functions = {
            f"{name}{n}": function(
                place=f"{PATH}:{n}",
                compiles={"compiled": programs},
                recompiles={"shape": programs - 1},
                program={"programs": programs},
                spreads={"execution": spread(0.1)},
            )
            for n in range(count)
        }
        events = [event(n, "x" * 2000, f"{name}{n % count}") for n in range(200)]
        values = {"times": [1e9] * 240, "values": [1.0] * 240}
        files = files_of(
            facts(
                functions,
                events=events,
                requests={f"{name}{n}": {"in_progress": 1} for n in range(200)},
                charts=dict.fromkeys(("steps", "requests", "latency"), values),
            )
        )
        assert len(files.summary.encode()) <= MOST_BYTES
        assert len(files.page.encode()) <= MOST_BYTES / 2
        assert parse(files.summary).snapshot.functions

    sized(64, "model.layers.block_", 200)
    sized(500, "\u4e2d" * 80, 2)


def _files() -> Iterator[tuple[str, bytes, str]]:
    yield "text", b"no JSON", "it is not JSON"
    yield "another", b'{"schema": 1}', "it is no summary of a run"
    later = json.dumps({"schema": SCHEMA + 1, "functions": []}).encode()
    yield "later", later, f"its schema is {SCHEMA + 1}"
    yield "large", b" " * (MOST_BYTES + 1), "too large"
    yield "list", b"[]", "it is no summary of a run"


@pytest.mark.parametrize(("name", "data", "reason"), list(_files()))
def test_files_that_are_no_summary_are_rejected(tmp_path, name, data, reason):
    """The error names the file, and why."""
    path = tmp_path / name
    path.write_bytes(data)

    with pytest.raises(RunError, match=re.escape(f"{path}: {reason}")):
        read_file(path)


def test_a_directory_has_one_summary(tmp_path: Path) -> None:
    """Of several, one has to be chosen; other files do not count."""
    with pytest.raises(RunError, match="has no summary"):
        read_file(tmp_path)
    text = build(full())
    (tmp_path / "run-1.json").write_text(text)
    (tmp_path / "oom-1.json").write_text("{}")
    assert read_file(tmp_path) == parse(text)

    (tmp_path / "run-2.json").write_text(text)
    with pytest.raises(RunError, match=r"has 2 summaries.*: run-1\.json, run-2\.json"):
        read_file(tmp_path)


def test_what_is_read_is_what_was_written() -> None:
    """A reader has the facts of the writer, up to the sixth digit."""
    found = parse(build(full()))
    snapshot = found.snapshot

    assert (found.schema, found.host, found.worker) == (SCHEMA, "host-1", "0")
    assert snapshot.functions[0].place == "train.step:7"
    assert snapshot.functions[0].spreads["execution"].count == 50
    assert snapshot.requests[0].finished[0].count == 9
    assert snapshot.charts["steps"].values == (1.0, 5.0, 2.0)
    assert snapshot.recompiles[0].omitted == 22
    assert len(snapshot.recompiles[0].differences) == 8
    assert snapshot.usual.work.middle == pytest.approx(0.0002)


def test_commands_between_backticks_are_set_as_such() -> None:
    """One without another stays, and what is in them is text."""
    assert prose("run `jaxmon <b>` now") == "run <kbd>jaxmon &lt;b&gt;</kbd> now"
    assert prose("a ` alone") == "a ` alone"
