"""The alerts as a set, the files made of them, and the command that makes them."""

import re
import shutil
import sys

import pytest
import yaml
from click.testing import CliRunner

from jaxmon.catalog import ACCELERATOR_UP
from jaxmon.cli import alerts as command
from jaxmon.cli.main import main
from jaxmon.promql import gauge
from jaxmon.settings import RUNBOOKS
from jaxmon_alerts import rules as alerts
from jaxmon_alerts import slo
from jaxmon_alerts.rules import Alert, RuleOptions
from jaxmon_alerts.rules.build import document
from tests.helpers.processes import ROOT, each, require_program
from tests.unit.test_slo import VALID


NAMES = {
    "JaxmonRequestErrorBudgetBurn",
    "JaxmonWarmLatencyBudgetBurn",
    "JaxmonColdStartBudgetBurn",
    "JaxmonStepFreshnessBudgetBurn",
    "JaxmonDeployInProgress",
    "JaxmonRecompileStorm",
    "JaxmonOutOfMemory",
    "JaxmonDeviceMemoryHigh",
    "JaxmonMemoryLeak",
    "JaxmonHostMemoryGrowth",
    "JaxmonTrainingStalled",
    "JaxmonTimeLost",
    "JaxmonNonFinite",
    "JaxmonCompileStuck",
    "JaxmonSlowdown",
    "JaxmonAcceleratorLost",
    "JaxmonAgentSilent",
    "JaxmonProgramsDiverge",
    "JaxmonGpuThrottled",
    "JaxmonTargetDown",
    "JaxmonServiceVanished",
    "JaxmonCheckFailed",
    "JaxmonSilentCorruption",
    "JaxmonCheckpointFailed",
    "JaxmonCompileFailed",
    "JaxmonCrashLoop",
    "JaxmonGoodputLow",
    "JaxmonRequestsHang",
    "JaxmonRankStuck",
    "JaxmonReplicaSlow",
    "JaxmonRunNoProgress",
    "JaxmonWatchdog",
    "JaxmonStraggler",
    "JaxmonThunderingCompilation",
    "JaxmonTrainingDied",
    "JaxmonWarmupFailed",
    "JaxmonGpuFault",
    "JaxmonMonitoringDegraded",
}
FILES = {"recording.yaml", "alerts.yaml", "alertmanager.yaml"}


def jaxmon(*arguments):
    """Run `jaxmon alerts` in this process."""
    return CliRunner().invoke(main, ["alerts", *map(str, arguments)])


def rules(text, kind="alert"):
    """Return the rules of a rule file of one kind."""
    groups = yaml.load(text, Loader=yaml.CSafeLoader)["groups"]
    return [rule for group in groups for rule in group["rules"] if kind in rule]


def test_the_set_of_alerts():
    """People route and silence by these names: a change is a decision."""
    assert {one.name for one in alerts.all_alerts()} == NAMES


@each(
    {str((one.name, one.severity, *one.labels)): (one,) for one in alerts.all_alerts()}
)
def test_an_alert_is_complete(alert):
    """Severity, summary, description, runbook, dashboard, and a job to group by."""
    assert alert.severity in {"page", "ticket", "info"}
    assert "{{ $" in alert.summary
    assert re.fullmatch(r"[A-Z].*\.", alert.description)
    assert "{{" not in alert.description
    annotations = document(alert, slo.Site())["annotations"]
    assert annotations["runbook"] == f"jaxmon runbook show {alert.name}"
    assert annotations["runbook_url"] == f"{RUNBOOKS}{alert.name}.md"
    # A path alone is no link.
    assert "dashboard_url" not in annotations
    assert "job" in {*(alert.expr.shape.labels or ()), *dict(alert.labels)}


def test_alerts_are_told_apart_by_their_labels():
    """No two rules of one name make the same alert."""
    found = [(one.name, one.severity, one.labels) for one in alerts.all_alerts()]

    assert len(found) == len(set(found))


def test_a_summary_cannot_name_a_label_that_is_gone():
    """What the expression drops, the text cannot use."""
    with pytest.raises(ValueError, match=r"X has no label instance; it has .*'uuid'"):
        Alert(
            name="X",
            expr=gauge(ACCELERATOR_UP).min("job", "uuid"),
            severity="page",
            description="X.",
            summary="{{ $labels.uuid }} of {{ $labels.instance }}",
        )


def test_the_tools_accept_what_is_built():
    """Promtool, every lint on, and amtool find nothing in the default files."""
    require_program("promtool")
    require_program("amtool")

    assert command.missing_tools() == []
    assert list(command.problems(alerts.render())) == []


def test_without_the_parser_its_checks_are_skipped(tmp_path, monkeypatch):
    """The command says which extra has it, and selectors are left to Prometheus."""
    monkeypatch.setitem(sys.modules, "promql_parser", None)
    path = tmp_path / "slo.yaml"
    path.write_text(VALID.replace('outcome="error"', 'outcome=~"(?=e).+"'))

    assert slo.load(path).get("request-error")
    assert "promql-parser (pip install 'jaxmon[alerts]') is not installed; " in (
        jaxmon("check").stderr
    )


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("alerts.yaml", "sum by", "sum bye"),
        ("recording.yaml", "record: slo:objective:ratio", "record: 1"),
        ("alertmanager.yaml", "receiver: page", "receiver: pager"),
    ],
)
def test_the_tools_notice_what_is_wrong(name, old, new):
    """The check above can fail, for each file."""
    require_program("promtool")
    require_program("amtool")
    files = alerts.render()
    assert old in files[name]
    files[name] = files[name].replace(old, new)

    assert len(list(command.problems(files))) == 1


def test_quick_motion_divides_durations_only():
    """At 60, windows and waits shrink, thresholds and labels stay."""
    texts = [
        alerts.render(options=RuleOptions(scale=scale))["alerts.yaml"]
        for scale in (1, 60)
    ]
    usual, quick = (
        {(one["alert"], *one["labels"].items()): one for one in rules(text)}
        for text in texts
    )
    recorded = rules(texts[1], "record")
    storm = next(one for key, one in quick.items() if key[0] == "JaxmonRecompileStorm")
    hook = next(
        one for key, one in quick.items() if ("symptom", "hook_inactive") in key
    )

    assert usual.keys() == quick.keys()
    [series] = [
        rule
        for rule in recorded
        if rule["record"] == "function:jaxmon_recompiles:max10s"
    ]
    assert "(sum_over_time(worker:jaxmon_recompiles:delta[9s999ms]))" in series["expr"]
    assert storm["expr"] == f"{series['record']} > 20"
    assert hook["for"] == "10s"


def test_custom_objectives_have_alerts_of_their_own(tmp_path):
    """Name, owner, objective and severity of one's own SLO arrive in the rules."""
    path = tmp_path / "slo.yaml"
    path.write_text(
        "slos:\n- name: eval-latency\n  title: Evaluations are fast\n"
        "  description: x\n  objective: 0.98\n  owner: research\n"
        "  indicator: {histogram: jaxmon_step_seconds, above: 3}\n"
        "limits: {recompiles: 7}\n"
    )
    text = alerts.render(slo.load(path))["alerts.yaml"]
    built, recorded = rules(text), rules(text, "record")
    [fast] = [one for one in recorded if one["record"].endswith("burning1h_14_4")]
    own = [rule for rule in built if rule["alert"] == "JaxmonEvalLatencyBudgetBurn"]
    [storm] = [rule for rule in built if rule["alert"] == "JaxmonRecompileStorm"]

    assert [rule["labels"]["severity"] for rule in own] == ["page", "ticket"]
    assert {rule["labels"]["owner"] for rule in own} == {"research"}
    assert "> 0.288 and" in fast["expr"]
    assert storm["expr"].endswith("> 7")


def test_build_writes_the_files(tmp_path):
    """Without options come the committed files; a second run changes nothing."""
    first = jaxmon("build", "--out", tmp_path)
    second = jaxmon("build", "--out", tmp_path)

    assert first.output.split() == sorted(str(tmp_path / name) for name in FILES)
    assert second.output == ""
    for name in FILES:
        committed = (ROOT / "alerts" / name).read_text()
        assert (tmp_path / name).read_text() == committed


def test_build_makes_a_resource_of_the_operator(tmp_path):
    """All rules, in one PrometheusRule, with the same groups as the rule files."""
    result = jaxmon("build", "--out", tmp_path, "--format", "prometheusrule")
    resource = yaml.load(
        (tmp_path / "prometheusrule.yaml").read_text(), Loader=yaml.CSafeLoader
    )
    files = alerts.render()
    groups = [
        group
        for name in ("recording.yaml", "alerts.yaml")
        for group in yaml.load(files[name], Loader=yaml.CSafeLoader)["groups"]
    ]

    assert result.exit_code == 0
    assert {path.name for path in tmp_path.iterdir()} == {
        "prometheusrule.yaml",
        "alertmanager.yaml",
    }
    assert resource["apiVersion"] == "monitoring.coreos.com/v1"
    assert resource["kind"] == "PrometheusRule"
    assert resource["metadata"]["name"] == "jaxmon"
    assert resource["spec"]["groups"] == groups


def test_slo_prints_a_file_to_start_from(tmp_path):
    """What is printed is what holds without a file, comments included."""
    path = tmp_path / "slo.yaml"
    path.write_text(jaxmon("slo").output)

    assert path.read_text() == slo.default()
    assert slo.load(path) == slo.load()


def test_check_accepts_what_is_right(tmp_path):
    """A good file, and built files that are up to date, are no problem."""
    path = tmp_path / "slo.yaml"
    path.write_text(slo.default())
    jaxmon("build", "--out", tmp_path / "built")
    result = jaxmon("check", path, "--against", tmp_path / "built")

    assert result.exit_code == 0
    assert "4 SLOs: no problems" in result.output


def test_check_names_the_line(tmp_path):
    """A file that cannot be used ends the command with a message, not a traceback."""
    path = tmp_path / "slo.yaml"
    path.write_text(slo.default().replace("above: 0.2", "above: 0.4"))
    result = jaxmon("check", path)

    assert result.exit_code == 1
    assert re.match(rf"Error: {re.escape(str(path))}:\d+: ", result.stderr)
    assert "no bucket bound 0.4" in result.stderr


def test_check_shows_what_is_out_of_date(tmp_path):
    """Changed and missing files are named, with the difference."""
    jaxmon("build", "--out", tmp_path)
    (tmp_path / "alertmanager.yaml").unlink()
    path = tmp_path / "alerts.yaml"
    path.write_text(path.read_text().replace("> 20", "> 30"))
    result = jaxmon("check", "--against", tmp_path)

    assert result.exit_code == 1
    assert "changed: alerts.yaml\n" in result.stdout
    assert "missing: alertmanager.yaml\n" in result.stdout
    assert "+    expr: function:jaxmon_recompiles:max10m > 20" in result.stdout
    assert "2 problem(s) found" in result.stderr


def test_check_goes_without_tools(monkeypatch):
    """Where promtool and amtool are missing, that is said, and the rest is checked."""
    monkeypatch.setattr(shutil, "which", lambda _: None)
    result = jaxmon("check")

    assert result.exit_code == 0
    assert "promtool is not installed; skipping its checks" in result.stderr
    assert "amtool is not installed" in result.stderr
