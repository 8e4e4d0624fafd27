"""What a push decides in situations that no test of `dashboards push` has."""

import json

import pytest

from jaxmon_dashboards.grafana.content import Stored, digest, parse
from jaxmon_dashboards.grafana.push import Relation, decide


BODY = {"uid": "jaxmon-oncall", "title": "On-call", "tags": ["jaxmon"], "refresh": "1m"}
DESIRED = parse(json.dumps(BODY), "oncall.json")
OLD = {**BODY, "refresh": "30s", "id": 7, "version": 3}
FOLDER = "jaxmon"


def ours(body):
    """Return the message with which a push saved *body*."""
    return f"jaxmon push 0.1 sha256:{digest(body)}"


def stored(body, **changes):
    """Return *body* as the last push left it, apart from *changes*."""
    values = {
        "body": body,
        "version": 3,
        "folder": FOLDER,
        "provisioned": False,
        "message": ours(body),
        "author": "sa-1-jaxmon",
        "updated": "2026-11-20T08:00:00Z",
        **changes,
    }
    return Stored(**values)


CASES = [
    ("nothing, ours listed", None, {"On-call": "jaxmon-oncall"}, Relation.CREATE, ""),
    (
        "edited with our record",
        stored(OLD, later=True, message=ours(BODY)),
        {},
        Relation.DRIFTED,
        "was saved by sa-1-jaxmon",
    ),
    (
        "moved only",
        stored(OLD, later=True, folder="x"),
        {},
        Relation.DRIFTED,
        "in folder x",
    ),
    ("same, by alice", stored(BODY, message=""), {}, Relation.UNCHANGED, ""),
    ("same, no history", stored(BODY, message=None), {}, Relation.UNCHANGED, ""),
    ("same, title taken", stored(BODY), {"On-call": "x"}, Relation.UNCHANGED, ""),
    ("same, provisioned", stored(BODY, provisioned=True), {}, Relation.UNCHANGED, ""),
    ("same, moved", stored(BODY, folder="x"), {}, Relation.DRIFTED, "in folder x"),
    ("old, title shared", stored(OLD), {"On-call": "x"}, Relation.UPDATE, ""),
    (
        "old, new title taken",
        stored({**OLD, "title": "Old"}),
        {"On-call": "x", "Old": "jaxmon-oncall"},
        Relation.FOREIGN,
        "uid x",
    ),
    (
        "provisioned elsewhere",
        stored(BODY, provisioned=True, folder="x"),
        {},
        Relation.PROVISIONED,
        "provisioned",
    ),
    ("no tags", stored({**OLD, "tags": None}), {}, Relation.FOREIGN, "lacks the tag"),
    (
        "edited by nobody known",
        stored(OLD, message="x", author="", updated=""),
        {},
        Relation.DRIFTED,
        "version 3 was saved, not by a push",
    ),
    (
        "edited under our message",
        stored(OLD, message=ours(BODY)),
        {},
        Relation.DRIFTED,
        "not what the last push wrote",
    ),
]


@pytest.mark.parametrize(
    ("observed", "taken", "state", "reason"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
def test_decision(observed, taken, state, reason):
    """Each situation has one state, and a reason where nothing will be written."""
    step = decide(DESIRED, observed, folder=FOLDER, taken=taken)
    assert step.state is state
    assert reason in step.reason
    assert bool(step.reason) == bool(reason)


@pytest.mark.parametrize("state", Relation)
def test_what_is_written(state):
    """Only what is new or ours is written; force adds what drifted and nothing else."""
    step = decide(DESIRED, None, folder=FOLDER, taken={})
    step = type(step)(step.desired, step.observed, state)
    assert step.writes() == (state in {Relation.CREATE, Relation.UPDATE})
    assert step.writes(force=True) == (step.writes() or state is Relation.DRIFTED)
