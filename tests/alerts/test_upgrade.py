"""
From the rules of the release before alerts were merged to today's: what a site set.

Its `slo.yaml`, silences, overrides, routes, dashboards and runbook links know alerts by
their former names. `docs/alerting.md` says what to do; here it is tried.
"""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from jaxmon.cli.main import main
from jaxmon.errors import SloError
from jaxmon.symptoms.alert import FORMER_NAMES, TICKET
from jaxmon_alerts import rules as alerts
from jaxmon_alerts import slo
from jaxmon_alerts.rules import RuleOptions
from tests.helpers.processes import ROOT


BEFORE = """
AcceleratorIdle AcceleratorLost AcceleratorUnderused AgentHookInactive AgentSilent
CacheHitRateBudgetBurn CheckFailed CheckpointAge CheckpointFailed ColdLatency
ColdStartBudgetBurn ColdStarts CollectorDown CompileFailed CompileSlow CompileStuck
CrashLoop DataStarvation DeployInProgress DeviceMemoryHigh ExportFailing GoodputLow
GpuEccErrors GpuNeedsReset GpuThrottled GpuXid HostMemoryGrowth KeyReuse MemoryLeak
NcclStuck NonFinite NotReady OutOfMemory ProgramsDiverge RankSlow RankStuck
RecompileStorm RequestErrorBudgetBurn RequestsHang RunNoProgress ServiceVanished
SilentCorruption Slowdown SpansDropped StepFreshnessBudgetBurn Straggler TargetDown
ThunderingCompilation TimeLost TpuRuntimeDown TrainingDied TrainingStalled
WarmLatencyBudgetBurn WarmupFailed WebConfigFailed
"""
UPGRADING = (ROOT / "docs/alerting.md").read_text().partition("## Upgrading")[2]
MERGED = {former: now for former, now in FORMER_NAMES.items() if "/" in now}


def conditions():
    """Return the conditions of today's alerts, by name and symptom."""
    return {f"{of.name}/{of.symptom}": of for of in alerts.all_alerts()}


def test_every_name_is_still_one_or_leads_on():
    """To a condition if there is one; the rest is in the weekly report."""
    names = {f"Jaxmon{name}" for name in BEFORE.split()}
    today = {of.name for of in alerts.all_alerts()}

    assert names - today == FORMER_NAMES.keys()
    assert set(MERGED.values()) <= conditions().keys()
    counted = f"Of {len(names)} alerts, {len(names & today)} have kept their names"
    assert counted in UPGRADING
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert [name for name in FORMER_NAMES if f"`{name}`" not in changes] == []


def test_a_file_of_the_last_release_needs_the_changes_that_the_text_names(tmp_path):
    """`jaxmon alerts check` names line after line; without these, it builds."""
    path = tmp_path / "slo.yaml"
    lines = (Path(__file__).parent / "upgrade/slo.yaml").read_text().splitlines()
    removed = set()
    while True:
        path.write_text("\n".join(lines))
        done = CliRunner().invoke(main, ["alerts", "check", str(path)])
        if done.exit_code == 0:
            break
        [(number, key)] = re.findall(
            r"slo\.yaml:(\d+): unknown key '(\w+)'", done.stderr
        )
        assert lines.pop(int(number) - 1).lstrip().startswith(f"{key}:")
        removed.add(key)

    listed = re.search(r"The limits\s(.+?) are gone", UPGRADING, re.DOTALL)
    assert listed
    assert removed == set(re.findall(r"`(\w+)`", listed[1]))
    slos = slo.load(path)
    built = {(of.name, of.severity) for of in alerts.all_alerts(slos)}
    # Its own objectives remain what they were: that on the cache, and what pages.
    assert ("JaxmonCacheHitRateBudgetBurn", TICKET) in built
    assert ("JaxmonWarmLatencyBudgetBurn", "page") in built
    assert ("JaxmonStepFreshnessBudgetBurn", "page") in built
    assert {of.name for of in alerts.all_alerts()} <= {name for name, _ in built}
    assert alerts.render(slos, RuleOptions())


@pytest.mark.parametrize("former", MERGED)
def test_an_override_of_a_former_name_says_what_to_write(former, tmp_path):
    """That, pasted, changes this condition and no other."""
    path = tmp_path / "slo.yaml"
    path.write_text(f"{slo.default()}\noverrides:\n  {former}: {{enabled: false}}\n")
    with pytest.raises(SloError) as error:
        alerts.all_alerts(slo.load(path))
    said = re.search(r"is no alert any more; see (\S+)$", str(error.value))
    assert said

    path.write_text(path.read_text().replace(former, said[1]))
    left = {f"{of.name}/{of.symptom}" for of in alerts.all_alerts(slo.load(path))}
    assert conditions().keys() - left == {said[1]}


def test_the_text_shows_names_that_exist():
    """Its examples are conditions: of silences, and of overrides."""
    shown = set(re.findall(r'alertname="(\w+)",symptom="(\w+)"', UPGRADING))
    assert shown
    assert {f"{name}/{symptom}" for name, symptom in shown} <= conditions().keys()
    assert set(re.findall(r"`(Jaxmon\w+/\w+)`", UPGRADING)) <= conditions().keys()
