"""Numbers by which something is judged stand in the table of limits."""

import ast
import re
from collections.abc import Iterator

from tests.helpers.processes import ROOT


# What is looked for: constants, what is passed on, multiples of 2, and comparisons.
ROOMS: dict[str, set[str]] = {
    "jaxmon/symptoms": {"constants", "calls", "twice"},
    "jaxmon/job": {"constants", "calls"},
    "jaxmon/screens": {"constants"},
    # They pass on what judges say: no comparison of theirs decides, and no colour.
    **{
        room: set[str]()
        for room in (
            *("alerts/jaxmon_alerts", "dashboards/jaxmon_dashboards"),
            *("exporters/jaxmon_exporter", "jaxmon/cli", "jaxmon/facts"),
            *("jaxmon/indicators", "jaxmon/otel", "jaxmon/preflight"),
        )
    },
}
# Numbers that are no limits: they guard what is measured, word it, or lay it out.
NO_LIMITS = """
symptoms/alert.py: scale
symptoms/answer.py: 2 * finding.seconds > observed; _LONG; _PAUSE
symptoms/cache.py: age < 2 * seconds_in(limits.thundering_window)
symptoms/compiles.py: 2 * missed; _EFFECT_SECONDS; _WORTH_A_LINE
symptoms/estimates.py: EXPLAINED; OF_A_LINE; _MORE; _RARELY; _SLACK;
    compiled < traced / 2
symptoms/findings.py: copies.seconds >= 2 * copying[copies.where];
    of.seconds >= 2 * profiled.get(of.where, 0.0)
symptoms/hardware.py: limits.duration('1d')
symptoms/job.py: _LEAST_SECONDS
symptoms/memory.py: _OF_A_NUMBER; _SLOWEST; _STARTING; age > 2 * seconds_in(window)
symptoms/monitoring.py: _BELOW; limits.duration('1d'); limits.duration('1h')
symptoms/programs.py: 2 * needed > number
symptoms/reason.py: _ABOUT; _ABOUT_RATES
symptoms/recompiles.py: _MOST_EVIDENCE
symptoms/recorded.py: buckets.quantile(0.95, *ROUTE); limits.duration('1h');
    part > most / 2
symptoms/requests.py: 2 * seconds_in(limits.hang_after); _HANGS_FOR; _SOME
symptoms/results.py: _MOST_NAMED; _SAME_SAMPLES
symptoms/runs.py: _ADDED; _AROUND; _NEAR; _RECENT; record.behind_in_all >
    record.lost_steps / 2
symptoms/serving.py: _STEADY; _THIRDS
symptoms/starts.py: limits.duration('1h')
symptoms/stalls.py: _COUNTED; _EARLIER; _LASTS; _REPEATS; _RHYTHM; _RHYTHM_OF_LOCKS
symptoms/steps.py: limits.duration('1d')
symptoms/symptom.py: HINT; NOTE; TIME
symptoms/time.py: 2 * rest > took; 2 * period.event_loops(self.state) > took;
    2 * snapshot.saves_blocked(period) > took; EXPLAINED; OF_A_LINE; _MEASURABLE;
    _SLOW_READ; again > took / 2
symptoms/updates.py: 2 * max(others, default=0) > found.calls
symptoms/unmarked.py: _AGAIN_AND_AGAIN; _IDLE; _MOST_OF_THE_CALLS; _MOST_OF_THE_TIME;
    _MISSED; _NO_CALL; _SEVERAL; _SOON
job/collectives.py: _DEVIATIONS; _LEAST_RECORDED; _MOST_NAMED; _MOST_SECONDS;
    _OLDEST_SECONDS; _WINDOWS
job/comparison.py: WINDOW; WINDOWS; _APART; _AS_LONG; _BEHIND_SECONDS; _BEHIND_STEPS;
    _DEVIATIONS; _FIRST_CALLS; _IS_KNOWN; _LASTS; _LATELY; _LEAST_SECONDS;
    _MANY_STEPS; _MOSTLY; _MOST_CHARACTERS; _MOST_IN_ALL; _MOST_WINDOWS; _OFTEN;
    _PART; _RECENT_SECONDS; _STEPS; _STUDENT
job/differences.py: _DIGITS; _MOST_GROUPS; _MOST_NAMED; _MOST_VALUES
job/model.py: values
job/post_mortem.py: _OLDEST; _SLACK
job/post_mortem_text.py: INDENT * 3; _MOST_FAILURES; _MOST_JOBS; _SAME
job/stragglers.py: FASTER_BEFORE; _LITTLE_WAIT; _MOST_OF_IT; _NO_WAIT; _OTHERS
job/stragglers_text.py: _MOST_SHOWN
job/text.py: INDENT * 3; INDENT * 4; _MOST_GROUPS; _MOST_JOBS; _MOST_OF_A_STACK;
    _MOST_SUSPECTS; _SOON
job/verdict.py: _RHYTHM
job/waiting.py: len(text) < 8
job/words.py: SCHEMA
screens/html/charts.py: _BEYOND; _DAY; _FEWEST; _GAP; _HEIGHT; _WIDTH
screens/html/page.py: _FEW; _FEW_CAUSES; _FEW_ROWS
screens/runs.py: MOST_BYTES; SCHEMA; _DIGITS; _LARGE; _LONGEST; _ROOMS
screens/tables.py: _LONG_SECONDS; _WORTH_SECONDS
screens/text.py: WIDTH
screens/time_table.py: _MOST_OF_THE_TIME; _WORTH; _WORTH_SAYING
"""
# What others compare: versions, statuses, lengths, and colours without an alert.
ELSEWHERE = """
0 < int(port) < 1 << 16
0 < port < 1 << 16
0 < seconds <= 86400
0 <= number < 1000000
0.05 <= slower_than <= 30
1970 <= found.year < 3000
Thresholds('red', ((0, 'orange'), (0.25, 'green')))
address.version == 4
address.version == 6
after <= before * (1 + self.share + 1e-12) + self.amount
duration == '0s'
elapsed // _REPLIES_EVERY % 4 == 0
error.status in (None, 401)
len(found) == 5
len(found) == title.count('(total)') == 3
len(names) > 3
len(port) > 5
len(users) > 3
number == 3
number == 4
number == 5
number == 7
number in (3, 4, 6)
q.above(0.2, 1)
q.above(0.8)
q.above(0.9)
q.above(1, 5)
q.above(1, 6)
q.above(60, 300)
q.below(0.1)
q.below(5)
made * 3600 > 0
response.status != 200
response.status == 404
response.status in range(300, 400)
self.attainment >= self.objective - 1e-12
sum((column.size for column, _ in fields)) + 18 > width
"""
DURATION = re.compile(r"\d+(?:ms|[smhdwy])")
# Colours of a board.
COLOURS = {"above", "below", "Thresholds"}


def test_what_is_judged_is_judged_by_limits():
    """A number that decides is in `jaxmon.limits`, where ``slo.yaml`` sets it."""
    allowed = {f": {text}" for text in ELSEWHERE.strip().splitlines()}
    for line in re.sub(r"\n {4}", " ", NO_LIMITS.strip()).splitlines():
        path, _, texts = line.partition(": ")
        allowed |= {f"jaxmon/{path}: {text}" for text in texts.split("; ")}
    found = {
        f"{path.relative_to(ROOT) if kinds else ''}: {text}"
        for room, kinds in ROOMS.items()
        for path in sorted((ROOT / room).rglob("*.py"))
        for text in numbers_of(ast.parse(path.read_text()), kinds)
    }
    assert found - allowed == set()


PLANTED = """
LATE = 1.0
_A, _B = 0.5, (5, 6)
_SOON: float = 4
_FEW = frozenset((3,))
_MOST_AGE, _MOST_SHOWN = 70, 7
_PART = -0.2

def judge(age, least=30.0, usual=1.0):
    "10m"
    limit = 90
    if x > 0 or age >= 95 * y or age > _MOST_AGE or max(age, 96) > y:
        return names[:_MOST_SHOWN], names[:8], f"{age:>9}", age / max(y, 1e-9)
    if age > 2 * usual:
        return Alert(rate > seconds("10m"), for_="15m"), at_least(age, 0.9)

class Judge:
    patience = 3
"""


def test_a_number_in_a_judgement_is_found():
    """However it is written; not where it counts what is shown, or lays it out."""
    planted = ast.parse(PLANTED)
    compared = {"age >= 95 * y", "max(age, 96) > y", "rate > seconds('10m')"}
    constants = {"LATE", "_A", "_B", "_SOON", "_FEW", "_MOST_AGE", "_PART", "patience"}
    passed = {"30.0", "90", "for_='15m'", "at_least(age, 0.9)", "age > 2 * usual"}

    assert {*numbers_of(planted, set())} == compared
    assert {*numbers_of(planted, {"constants"})} == compared | constants
    every = {*numbers_of(planted, ROOMS["jaxmon/symptoms"])}
    assert every == compared | constants | passed
    board = ast.parse("stat(thresholds=q.above(0.8)); q.below(limits.goodput)")
    assert [*numbers_of(board, set())] == ["q.above(0.8)"]


def numbers_of(module: ast.Module, kinds: set[str]) -> Iterator[str]:
    """
    Yield what in *module* is, or has, a number or a duration: comparisons and colours,
    and of the *kinds*.
    """
    parents = {
        part: node for node in ast.walk(module) for part in ast.iter_child_nodes(node)
    }
    compared = {
        name.id
        for node in ast.walk(module)
        if isinstance(node, ast.Compare)
        for name in ast.walk(node)
        if isinstance(name, ast.Name)
    }
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and may_limit(node, parents, kinds):
            yield from holders(node, parents, compared, kinds)


def may_limit(
    node: ast.Constant, parents: dict[ast.AST, ast.AST], kinds: set[str]
) -> bool:
    """Return whether *node* is a duration, a constant, or a number of some size."""
    value, parent = node.value, parents[node]
    if isinstance(value, str):
        return bool(DURATION.fullmatch(value)) and not isinstance(parent, ast.Expr)
    # By 1e-9, at least, something is divided.
    if not isinstance(value, int | float) or value is True or value == 1e-9:
        return False
    if isinstance(parent, ast.Assign | ast.AnnAssign) and value:
        return isinstance(parents[parent], ast.Module | ast.ClassDef) or value > 2
    if value == 2:
        return "twice" in kinds and isinstance(parent, ast.BinOp)
    return value not in {0, 1}


def holders(
    node: ast.AST, parents: dict[ast.AST, ast.AST], compared: set[str], kinds: set[str]
) -> Iterator[str]:
    """Yield the constants that have the number *node*, or what it is a part of."""
    inside: list[ast.AST] = [node]
    while not isinstance(at := inside[-1], ast.stmt):
        inside.append(parents[at])
        if isinstance(parents[at], ast.JoinedStr) or at is slice_of(parents[at]):
            return
    calls = {called(part) for part in inside if isinstance(part, ast.Call)}
    found: list[ast.AST] = [part for part in inside if isinstance(part, ast.Compare)]
    found += [part for part in inside if called(part) in COLOURS]
    constant = isinstance(parents[at], ast.Module | ast.ClassDef) and names_of(at)
    if not found and constant and ("calls" in kinds or calls <= {"frozenset"}):
        # What is shown at most is no limit, unless something is compared with it.
        yield from (
            name
            for name in constant
            if kinds and ("MOST" not in name or name in compared)
        )
    elif not found and "calls" in kinds:
        parts = (ast.Call, ast.BinOp, ast.keyword)
        found = [part for part in inside if isinstance(part, parts)] or [node]
    yield from map(ast.unparse, found[:1])


def slice_of(node: ast.AST) -> ast.AST | None:
    return getattr(node, "slice", None)


def called(node: ast.AST) -> str:
    function = getattr(node, "func", None)
    return getattr(function, "attr", getattr(function, "id", ""))


def names_of(statement: ast.AST) -> list[str]:
    """Return the names that *statement* assigns to."""
    targets = getattr(statement, "targets", [getattr(statement, "target", None)])
    return [
        name.id
        for target in targets
        if target is not None
        for name in ast.walk(target)
        if isinstance(name, ast.Name)
    ]
