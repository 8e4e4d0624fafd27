"""The alert about a rank that is stuck: a real job, sidecars and Prometheus."""

import json
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from jaxmon_alerts import rules as alerts
from jaxmon_alerts import slo
from tests.helpers.processes import http_get, until
from tests.helpers.prometheus import Prometheus
from tests.job.running import Job, running


ALERT = "JaxmonRankStuck"
SCALE = 60


def rules(directory: Path) -> Path:
    """Return a file with the rule of the alert as it is generated, but accelerated."""
    text = alerts.render(slo.load(), alerts.RuleOptions(scale=SCALE, drawn=False))
    groups = yaml.safe_load(text["alerts.yaml"])["groups"]
    found = [
        rule
        for group in groups
        for rule in group["rules"]
        if "record" in rule or rule["labels"].get("symptom") == "rank_stuck"
    ]
    assert {rule["alert"] for rule in found if "alert" in rule} == {ALERT}
    path = directory / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "job", "rules": found}]}))
    return path


def place(job: Job, rank: int) -> tuple[str, str]:
    """Return instance and worker of *rank*, as its sidecar knows it."""
    for one in job.sidecars:
        for known in json.loads(http_get(f"{one.url}/job"))["ranks"]:
            if known.get("index") == rank:
                return urlsplit(one.url).netloc, known["worker"]
    raise AssertionError(rank)


def firing(server: Prometheus) -> list[dict[str, str]]:
    found = server.query(f'ALERTS{{alertname="{ALERT}",alertstate="firing"}}')
    return [labels for labels, _ in found]


def test_the_alert_names_the_rank_that_is_stuck(prometheus, tmp_path):
    """
    With the sidecar of its host, its slot there and what it is doing, while the others
    wait; as long as it is stuck, and of no job that gets on.
    """
    config = {"rule_files": [str(rules(tmp_path))]}
    with running(2) as job:
        addresses = [urlsplit(one.url).netloc for one in job.sidecars]
        server = prometheus({"train-7": addresses}, config=config)
        server.until_up()
        assert firing(server) == []
        job.inflict("asleep", 1)
        until(lambda: firing(server), "the alert")
        [labels] = firing(server)
        assert (labels["instance"], labels["worker"]) == place(job, 1)
        assert labels["instance"] == addresses[1]
        assert (labels["job"], labels["state"]) == ("train-7", "blocked")
        job.recover()
        until(lambda: not firing(server), "the end of the alert")
