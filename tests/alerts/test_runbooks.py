"""Runbooks: one for each alert, and everything in them can be done."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.error import HTTPError

import pytest
from click.testing import CliRunner

from jaxmon.catalog import BY_NAME
from jaxmon.cli import runbook
from jaxmon.cli.main import COMMANDS, load, main
from jaxmon.symptoms.alert import FORMER_NAMES
from jaxmon_alerts import rules as alerts
from tests.alerts.promtool import shipped
from tests.helpers.preloaded import run_preloaded, start_preloaded
from tests.helpers.processes import (
    ROOT,
    clean_environ,
    each,
    free_port,
    http_get,
    until,
)
from tests.helpers.prometheus import Prometheus


NAMES = runbook.names()
PAGES = [*runbook.GUIDES, *NAMES]
HEADINGS = [
    *("First", "Meaning", "Impact", "Diagnosis", "Mitigation"),
    "Using this page",
]
BIN = Path(sys.executable).parent
SITE = ROOT / "tests/sites/inference.yaml"

INTRODUCTION = """
- `jaxmon runbook show {name} --label job=web --label cluster=eu`
  puts the alert's labels into the queries. By hand, replace `$cluster`, `$job`,
  `$instance`, with `.*` for a label that the alert lacks.
- Commands run beside the process: `kubectl exec -n NAMESPACE POD -c jaxmon -- COMMAND`,
  `srun --jobid=ID --overlap -w NODE COMMAND`, or a shell on the host.
  `jaxmon runbook show reach` says what they need, and what they print.
"""

# Commands that serve until they are stopped; their options are tried, no more.
SERVING = ("exporter", "run", "demo")
# So do those that need the hosts of a job; tests/e2e/test_job.py runs them.
FOR_JOBS = ("job",)

_BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(jaxmon [^`]+)`")
_METRIC = re.compile(r"(?<![\w:])(?:\w+:)?(?:jaxmon|process|python)_[\w:]*(?=[\[{)\s])")
_SELECTOR = re.compile(
    r'(?<![\w":])((?:\w+:)?(?:jaxmon|process)_[\w:]+|up|ALERTS\w*)'
    r"(?:\{([^}]*)\})?(?=[\[)\s]|$)"
)
# Served by a sidecar, whose job may be another one than that of the program.
_OF_HOSTS = re.compile(r"up$|jaxmon_(accelerator|gpu|tpu|host|collector|device_info)")
_SUFFIX = re.compile(r"_(bucket|sum|count)$")


def blocks(name, language):
    return [
        text for found, text in _BLOCK.findall(runbook.read(name)) if found == language
    ]


def commands(name):
    """Return the `jaxmon` commands that a runbook mentions in passing."""
    prose = _BLOCK.sub("", runbook.read(name))
    return [" ".join(one.split()) for one in _INLINE.findall(prose)]


QUERIES = [(name, query) for name in PAGES for query in blocks(name, "promql")]
# Many pages begin with the same, but for the name of an archive.
SCRIPTS = {
    re.sub(r"\S+\.tar\.gz", "found.tar.gz", script): f"{name}-{number}"
    for name in PAGES
    for number, script in enumerate(blocks(name, "sh"))
}
# Without those that are lines of a block, which are tried there.
MENTIONED = sorted(
    {one for name in PAGES for one in commands(name)}
    - {line.strip() for script in SCRIPTS for line in script.splitlines()}
)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Return a real Prometheus that evaluates queries."""
    with Prometheus(tmp_path_factory.mktemp("prometheus"), {}) as running:
        yield running


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    address = f"127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        [
            str(BIN / "jaxmon"),
            "exporter",
            "--demo",
            "--host=127.0.0.1",
            f"--port={address.partition(':')[2]}",
        ],
        env=clean_environ(tmp_path_factory.mktemp("run")),
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: answers(f"http://{address}/-/ready"), "the sidecar to be ready")
        yield address
    finally:
        process.terminate()
        process.wait(90)


@pytest.fixture(scope="module")
def program() -> Iterator[str]:
    """Return the run directory of a program with an agent, which commands look into."""
    with TemporaryDirectory(prefix="jm-", dir="/tmp") as run_dir:
        process = start_preloaded(
            str(ROOT / "tests" / "programs" / "worker.py"),
            environ=clean_environ(Path(run_dir)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        with process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline().startswith("http://")
                yield run_dir
            finally:
                process.kill()


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the report directory of a program that ran out of memory."""
    directory = tmp_path_factory.mktemp("reports")
    source = """
import jax, jaxmon
jaxmon.instrument(port=None, socket=False)
try:
    jax.jit(lambda: jax.numpy.zeros(10**14))()
except jax.errors.JaxRuntimeError:
    pass
"""
    run_preloaded("-c", source, env={"JAXMON_REPORT_DIR": str(directory)}).ok()
    return str(directory)


@pytest.fixture
def environ(program, reports, tmp_path):
    """Return the environment of an operator on the host of *program*."""
    found = clean_environ(Path(program), HOME=str(tmp_path), JAXMON_REPORT_DIR=reports)
    return found | {"PATH": f"{BIN}:{found['PATH']}"}


def answers(url):
    try:
        return bool(http_get(url))
    except OSError:
        return False


def test_there_is_a_runbook_for_each_alert_and_no_other():
    """An alert's link never dangles, and no runbook is forgotten."""
    assert {one.name for one in alerts.all_alerts()} == set(NAMES)


@each({name: (name,) for name in NAMES})
def test_a_runbook_has_its_parts(name):
    """
    First come a few points, which no other part repeats, of steps that there are; last
    how to use the page, in the same words; and no part is empty.
    """
    page = runbook.read(name)
    title, *parts = re.split(r"^## ", page, flags=re.MULTILINE)
    _, first, rest = re.split("## (?:First|Meaning)\n", page)
    _, _, end = page.partition("## Using this page\n")
    points = first.strip().removeprefix("- ").split("\n- ")
    steps = "".join(re.findall(r"\(?steps? [^,:)]+", first))

    assert title.strip() == f"# {name}"
    assert [part.partition("\n")[0] for part in parts] == HEADINGS
    assert all(part.partition("\n")[2].strip() for part in parts)
    assert " ".join(end.split()) == " ".join(INTRODUCTION.format(name=name).split())
    assert 1 <= len(points) <= 3
    assert len(first.split()) <= 60
    assert not [point for point in points if point in rest]
    assert all(f"\n{step}. " in rest for step in re.findall(r"\d", steps))


def test_what_commands_need_is_listed():
    """Each program that a page runs, and each command of jaxmon, is in the guide."""
    table = runbook.read("reach").partition("## What the commands need")[2]
    listed = {*re.findall(r"`([\w-]+)`", table.partition("\n## ")[0])}
    used = {
        words[words[0] == "jaxmon"]
        for script in SCRIPTS
        for line in script.splitlines()
        if (words := line.split()) and re.fullmatch(r"[a-z-]+", words[0])
    }
    programs = r"`((?:py-spy|dmesg|nvidia-smi|dcgmi|lspci|kubectl|srun|sacct)\b)"
    used |= {one for name in PAGES for one in re.findall(programs, runbook.read(name))}

    # Those read what the line before has written.
    assert used - {"tar", "head", "cat"} <= listed


def test_commands_for_another_shell_can_be_parsed():
    """What is typed through kubectl, srun or ssh is a command with these options."""
    lines = re.findall(
        r"^ {4}\w.* (jaxmon [^>\n]+)", "\n".join(map(runbook.read, PAGES)), re.MULTILINE
    )
    for line in lines:
        _, name, *rest = shlex.split(line)
        # A command keeps the option of help that it was first asked with.
        load(name).make_context(name, rest, help_option_names=["-h", "--help"])

    assert len(lines) > 4


@each({name: (name,) for name in PAGES})
def test_a_page_can_be_read_and_pasted(name):
    """
    At three in the morning it is short, its commands write nothing beside the process,
    and its queries select the cluster, and the job or the instance, or everything.
    """
    page = runbook.read(name)
    lines = page.splitlines()
    long = [line for line in lines if len(line) > 105]
    assert len(lines) <= 130
    assert not [line for line in long if not re.search(r"[|{]|https:", line)]

    for line in map(str.strip, "\n".join(blocks(name, "sh")).splitlines()):
        # The root of the sidecar's container is read-only: output goes to the caller.
        if line.startswith("jaxmon ") and not line.startswith("jaxmon alerts "):
            assert re.search(r"--out(?! -( |$))", line) is None, line

    for query in blocks(name, "promql"):
        selected = _SELECTOR.findall(query)
        assert selected, query
        for metric, matchers in selected:
            assert 'cluster=~"$cluster"' in matchers, f"{metric} in {query}"
            if not _OF_HOSTS.match(metric):
                assert re.search(r"(job|instance)=~", matchers), f"{metric} in {query}"

    for _, text in _BLOCK.findall(runbook.filled(page, {})):
        assert "=~" not in text or not re.search(r"\$[a-z]", text)
    labels = {"namespace": "x", "pod": "y"}
    shown = runbook.filled(page, labels, ("cluster", "namespace"), ("pod",))
    for _, query in _BLOCK.findall(shown):
        assert query.count('cluster=~".*"') == query.count('namespace=~"x"')
        assert query.count("instance=~") == query.count('pod=~"y"')


@pytest.mark.parametrize(
    ("name", "query"), QUERIES, ids=[f"{n}-{i}" for i, (n, _) in enumerate(QUERIES)]
)
def test_queries_work(name, query, prometheus):
    """Prometheus evaluates each query of metrics of the catalogue, or recorded ones."""
    try:
        prometheus.query(query)
    except HTTPError as error:
        pytest.fail(f"{name}: {error.read().decode()}", pytrace=False)
    used = {_SUFFIX.sub("", one) for one in _METRIC.findall(query)}

    rules = (rule for group in shipped().recording for rule in group["rules"])
    assert used <= {*BY_NAME, *(rule["record"] for rule in rules)}, name
    assert used or re.search(r"\b(up|ALERTS\w*)\b", query), name


@pytest.mark.parametrize("command", MENTIONED)
def test_commands_in_the_text_work(command, program):
    """What the text asks to type does what it says, beside a program that runs."""
    environ = {"JAXMON_RUN_DIR": program}
    result = CliRunner(env=environ).invoke(main, shlex.split(command)[1:])

    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("script", SCRIPTS, ids=SCRIPTS.get)
def test_commands_in_blocks_work(script, sidecar, environ, tmp_path):
    """Each block runs on a host with a sidecar and a program; servers know --help."""
    lines = [
        f"{line} --help" if {*line.split()[1:2]} & {*SERVING, *FOR_JOBS} else line
        for line in map(str.strip, script.splitlines())
    ]
    script = "\n".join(lines).replace("localhost:9467", sidecar)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env=environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_options_in_blocks_exist():
    """``--help`` hides unknown options of commands that serve: look them up."""
    known = {
        name: {option for one in load(name).params for option in one.opts}
        for name in COMMANDS
    }
    for script, name in SCRIPTS.items():
        for line in map(str.strip, script.splitlines()):
            words = line.split()
            if words[0] == "jaxmon" and words[1] in SERVING:
                options = {word for word in words if word.startswith("--")}
                assert options <= known[words[1]], f"{name}: {line}"


def test_settings_that_runbooks_name_exist():
    """A threshold or key of slo.yaml that a runbook asks to change is one."""
    default = (ROOT / "alerts" / "slo.yaml").read_text()
    for name in NAMES:
        text = " ".join(runbook.read(name).split())
        for setting in re.findall(r"raise `([a-z_]+)`", text):
            assert f"{setting}:" in default, f"{name}: {setting}"
        for section in re.findall(r"under `([a-z_]+)`", text):
            assert f"\n{section}:" in default, f"{name}: {section}"


def test_blocks_are_of_a_kind_that_is_tried():
    """No code block escapes the tests above."""
    kinds = {kind for name in PAGES for kind, _ in _BLOCK.findall(runbook.read(name))}

    assert kinds == {"promql", "sh"}
    assert len(QUERIES) > len(PAGES)


def test_list_shows_each_runbook():
    """`jaxmon runbook list` has a line for each: its name, and a sentence."""
    result = CliRunner().invoke(main, ["runbook", "list"])
    lines = result.output.splitlines()

    assert [line.split()[0] for line in lines] == PAGES
    assert all(re.search(r" {2}[A-Z].+\.$", line) for line in lines)


def test_list_on_a_terminal_breaks_no_words(monkeypatch):
    """Sentences go on beside the names, where a terminal would break them anywhere."""
    monkeypatch.setattr("jaxmon.cli.output.is_terminal", lambda _: True)
    monkeypatch.setenv("COLUMNS", "80")
    lines = CliRunner().invoke(main, ["runbook", "list"]).output.splitlines()

    assert [line.split()[0] for line in lines if line[0] != " "] == PAGES
    assert max(map(len, lines)) <= 80
    assert len(lines) > len(PAGES)


@pytest.mark.parametrize(
    "name", ["JaxmonGpuFault", "jaxmongpufault", "GpuFault", "gpufault"]
)
def test_show_prints_a_runbook(name):
    """Case and prefix do not matter at three in the morning."""
    result = CliRunner().invoke(main, ["runbook", "show", name])

    assert result.exit_code == 0
    assert result.output == runbook.filled(runbook.read("JaxmonGpuFault"), {})
    assert "## Meaning" in result.output


def test_former_names_have_a_runbook():
    """Links and habits from before alerts were merged lead on, and say so."""
    for former, heir in FORMER_NAMES.items():
        name = heir.partition("/")[0]
        result = CliRunner().invoke(main, ["runbook", "show", former])

        assert result.exit_code == 0
        assert result.stderr == f"{former} is no alert any more; see {heir}:\n"
        assert result.stdout == runbook.filled(runbook.read(name), {})


def test_show_puts_labels_into_the_queries():
    """Values are matched as they are, also those with characters of patterns."""
    words = ["runbook", "show", "JaxmonColdStartBudgetBurn", "--label=job=we.b"]
    words += ["--label=cluster=eu", '--label=namespace=a"b']
    result = CliRunner().invoke(main, words)
    selected = r'{cluster=~"eu",namespace=~"a\"b",job=~"we\\.b"}'

    assert result.exit_code == 0, result.output
    assert f"(worker:jaxmon_recompiles:delta{selected}[10m])" in result.output


def test_labels_of_a_site_are_selected_too():
    """Those of services stand beside the cluster, those of processes by instance."""
    words = ["runbook", "show", "JaxmonGpuFault", f"--slo={SITE}", "--label=region=eu"]
    words += ["--label=node=n1", "--label=instance=a:1", "--label=uuid=GPU-1"]
    result = CliRunner().invoke(main, words)
    selected = '{cluster=~".*",region=~"eu",instance=~"a:1",node=~"n1"}'

    assert result.exit_code == 0, result.output
    assert f"(jaxmon_accelerator_up{selected})" in result.stdout
    # The alert has it, and the runbook shows all devices.
    assert result.stderr == "no query here selects by uuid\n"


@pytest.mark.parametrize(
    ("label", "name"),
    [("clutser=eu", "JaxmonGpuFault"), ("region=eu", "triage"), ("loop=a", "GpuFault")],
)
def test_a_label_that_the_alert_lacks_is_refused(label, name):
    """The error has the labels that there are, and where one's own come from."""
    result = CliRunner().invoke(main, ["runbook", "show", name, f"--label={label}"])

    assert result.exit_code == 1
    unknown = label.partition("=")[0]
    assert f"unknown label {unknown!r}; " in result.stderr
    assert " alertname, " in result.stderr
    assert "cluster, " in result.stderr
    assert "--slo slo.yaml" in result.stderr


def test_labels_with_odd_characters_are_valid(prometheus):
    """Prometheus can parse a selector with any value."""
    text = '```promql\nabsent(up{job=~"$job"})\n```'
    shown = runbook.filled(text, {"job": 'we.b|"x"\\y$1{2}[^3](*+?)'})
    ((labels, value),) = prometheus.query(shown.splitlines()[1])

    assert (labels, value) == ({}, 1)


@pytest.mark.parametrize("label", ["job", "=web", "job=", "9=x"])
def test_an_invalid_label_is_rejected(label):
    """The error says what a label looks like."""
    result = CliRunner().invoke(main, ["runbook", "show", "triage", f"--label={label}"])

    assert result.exit_code == 2
    assert "is not a label; give NAME=VALUE, such as job=web" in result.stderr


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("JaxmonGpuFaul", "did you mean JaxmonGpuFault"),
        ("hang", "did you mean JaxmonRequestsHang? By what you see: "),
        ("zzz", "see: jaxmon runbook list; by what you see: jaxmon runbook show"),
        ("../README", "see: jaxmon runbook list"),
    ],
)
def test_show_helps_with_a_wrong_name(name, hint):
    """What is not there is named, and what might have been meant."""
    result = CliRunner().invoke(main, ["runbook", "show", name])

    assert result.exit_code == 1
    assert f"no runbook {name!r}; {hint}" in result.stderr
