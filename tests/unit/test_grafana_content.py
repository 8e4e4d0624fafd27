"""What counts as the content of a dashboard."""

import json
from typing import Any

import pytest

from jaxmon_dashboards.grafana.content import (
    ContentError,
    content,
    digest,
    lines,
    load,
)


BODY: dict[str, Any] = {
    "uid": "a",
    "title": "A",
    "tags": ["jaxmon"],
    "panels": [{"id": 1, "options": {"calcs": ["lastNotNull"], "width": 2}}],
    "templating": {"list": [{"name": "job", "multi": True}]},
}


@pytest.mark.parametrize(
    "other",
    [
        {**BODY, "id": 4, "version": 9, "iteration": 1, "schemaVersion": 42},
        {**BODY, "uid": "b"},
        {**BODY, "links": [], "description": None, "timepicker": {}},
        {**BODY, "timepicker": {"hidden": {"by": None}}},
        {
            **BODY,
            "templating": {"list": [{"name": "job", "multi": True, "current": 1}]},
        },
        json.loads(json.dumps(BODY).replace("2", "2.0")),
        dict(reversed(BODY.items())),
    ],
)
def test_the_same_content(other):
    """What Grafana assigns or keeps as state, and what means absent, does not count."""
    assert content(other) == content(BODY)
    assert digest(other) == digest(BODY)


@pytest.mark.parametrize(
    "other",
    [
        {**BODY, "title": "B"},
        {**BODY, "tags": []},
        {**BODY, "editable": False},
        {**BODY, "panels": []},
        {**BODY, "panels": [{**BODY["panels"][0], "id": 2}]},
        {**BODY, "panels": [*BODY["panels"], {}]},
        {**BODY, "templating": {"list": [{"name": "job", "multi": False}]}},
        {**BODY, "templating": {"list": []}},
        json.loads(json.dumps(BODY).replace("2", "2.5")),
        {**BODY, "version": 1, "refresh": "5s"},
    ],
)
def test_other_content(other):
    """Everything else counts, the id of a panel too: links point to it."""
    assert digest(other) != digest(BODY)


def test_places_in_a_list_count():
    """An empty item of a list is not dropped: it would move the others."""
    assert content({"x": [{}, 1]}) == {"x": [{}, 1]}


def test_files_and_directories(tmp_path):
    """A directory stands for its JSON files, in order; other files are left out."""
    for uid in ("b", "a"):
        path = tmp_path / "d" / f"{uid}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({**BODY, "uid": uid, "title": uid}))
    (tmp_path / "d" / "README").touch()
    one = tmp_path / "one.txt"
    one.write_text(json.dumps({**BODY, "uid": "c", "title": "c"}))
    assert [found.uid for found in load([tmp_path / "d", one])] == ["a", "b", "c"]


def test_a_file_that_is_not_text(tmp_path):
    """Bytes that are no UTF-8 are refused with the file's name."""
    path = tmp_path / "binary.json"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ContentError, match=r"binary\.json: line 1: not UTF-8"):
        load([path])


@pytest.mark.parametrize("templating", [None, 7, {"list": 7}, {"list": [7]}, {}])
def test_odd_variables(templating):
    """Whatever stands where variables should be has a hash."""
    assert len(digest({**BODY, "templating": templating})) == 64


def test_lines_cannot_control_a_terminal():
    """Control characters of others are shown, not sent; other letters stay."""
    found = "".join(lines({"title": "µ \x9b2J \u202e"})), lines({"title": "µs"})
    assert found[0].isprintable()
    assert found[1] == ["{", '  "title": "µs"', "}"]


def test_the_hash_is_for_ever():
    """Another hash would make every dashboard of an earlier release look edited."""
    body = {**BODY, "id": 1, "title": "µ", "refresh": "30s", "x": [1.0, 0.1, None]}
    assert digest(body) == (
        "ebda518b34ae914f7ff4f59bec86425535d0373f178d020fdb10daebf2e34b8c"
    )


TIME = {"from": "now-1h", "autoRefresh": "30s"}
RESOURCE: dict[str, Any] = {
    "apiVersion": "dashboard.grafana.app/v2",
    "kind": "Dashboard",
    "metadata": {"name": "a"},
    "spec": {
        "title": "A",
        "tags": ["jaxmon"],
        "editable": False,
        "timeSettings": TIME,
        "variables": [
            {"kind": "QueryVariable", "spec": {"name": "job", "current": {"text": "x"}}}
        ],
    },
}


def changed(**members: Any) -> dict[str, Any]:
    """Return the resource with other *members* of its spec."""
    return {**RESOURCE, "spec": {**RESOURCE["spec"], **members}}


def one_variable(**members: Any) -> dict[str, Any]:
    """Return the resource with *members* in its variable."""
    spec = {"name": "job", **members}
    return changed(variables=[{"kind": "QueryVariable", "spec": spec}])


@pytest.mark.parametrize(
    "other",
    [
        {**RESOURCE, "status": {}, "metadata": {"name": "a", "generation": 7}},
        changed(preload=False, links=None, annotations=[], description=None),
        changed(
            timeSettings={**RESOURCE["spec"]["timeSettings"], "hideTimepicker": False}
        ),
        one_variable(),
        one_variable(current=1, multi=False, regex=""),
    ],
)
def test_the_same_resource(other):
    """Metadata, chosen values, and what a server adds to each resource do not count."""
    assert digest(other) == digest(RESOURCE)


@pytest.mark.parametrize(
    "other",
    [
        changed(title="B"),
        changed(preload=True),
        changed(editable=True),
        changed(fiscalYearStartMonth=False),
        changed(variables=[]),
        changed(elements={"panel-1": {"kind": "Panel"}}),
        changed(thresholds=[{"value": 0}]),
        one_variable(multi=True),
        RESOURCE["spec"],
    ],
)
def test_another_resource(other):
    """Everything else counts, also false where it is not what a server adds."""
    assert digest(other) != digest(RESOURCE)


def test_the_hash_of_a_resource_is_for_ever():
    """It is the same in every release, as that of a classic body."""
    assert digest(changed(x=[1.0, 0.1, None], preload=False)) == (
        "6ca4f4a294aefb3ae4adcf09a0dc18fc9a91f1a7ea9776683616ce83e19e92e1"
    )
