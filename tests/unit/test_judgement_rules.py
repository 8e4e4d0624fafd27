"""Numbers by which something is judged stand in the table of limits."""

import ast
from collections.abc import Iterator

from tests.helpers.processes import ROOT


# Numbers of judgements that are no limits: they guard what is measured, or word it.
NO_LIMITS = {
    "answer.py": {"_PAUSE"},
    "compiles.py": {
        *("_CALLBACK_SECONDS", "_EFFECT_SECONDS"),  # what such a call takes
        *("_WORTH_A_LINE", "_SLOW_SECONDS", "_WRITER"),
    },
    "job.py": {"_LITTLE", "_LEAST_SECONDS", "_LEAST_SHARE", "_LEAST_PROCESSES"},
    "comparison.py": {
        *("_APART", "_AS_LONG", "_BEHIND_SECONDS", "_BEHIND_STEPS", "_FIRST_CALLS"),
        *("_LATELY", "_LEAST_SECONDS", "_PART", "_RECENT_SECONDS", "WINDOW", "WINDOWS"),
        *("_DEVIATIONS", "_IS_KNOWN", "_LASTS", "_MANY_STEPS", "_MOSTLY", "_OFTEN"),
        *("_STEPS", "_STUDENT"),
    },
    "collectives.py": {"_DEVIATIONS", "_LEAST_RECORDED", "_OLDEST_SECONDS", "_WINDOWS"},
    "differences.py": {"_DIGITS", "_WRITER"},
    "failures.py": {"_OLDEST"},
    "memory.py": {"_DAY", "_OF_A_NUMBER", "_SLOWEST"},
    "post_mortem.py": {"_SLACK"},
    "post_mortem_text.py": {"_SAME"},
    "reason.py": {"_MINUTE_LEAST", "_MINUTE_MOST"},
    "requests.py": {"_CALLERS", "_HANGS_FOR", "_SOME"},
    "results.py": {"_SAME_SAMPLES"},
    "runs.py": {
        *("_NEAR", "_ADDED"),  # symptoms/runs.py
        *("SCHEMA", "_DIGITS", "_LARGE", "_LONGEST", "_ROOMS"),  # screens/runs.py
    },
    "serving.py": {"_STEADY", "_THIRDS"},
    "steps.py": {"_EARLIER", "_REPEATS", "_RHYTHM", "PATIENCE"},
    "stragglers_text.py": {"_FASTER_BEFORE"},
    "tables.py": {"_GAP", "_GOODPUT", "_LONG_SECONDS", "_WORTH_SECONDS"},
    "text.py": {"_SOON", "WIDTH"},
    "time_table.py": {"_WORTH", "_WORTH_SAYING"},
    "words.py": {"SCHEMA"},
    "waiting.py": {"len(text) < 8"},
    "time.py": {"OF_A_LINE", "_MORE", "_RARELY", "_EXPLAINED"},
    "stragglers.py": {"_LITTLE_WAIT", "_NO_WAIT", "_OTHERS"},
    "verdict.py": {"_MOST_USUAL", "_RHYTHM"},
}
JUDGES = ("symptoms/*.py", "job/*.py", "screens/*.py")


def test_what_is_judged_is_judged_by_limits():
    """A number that decides is in `jaxmon.limits`, where ``slo.yaml`` sets it."""
    paths = [path for one in JUDGES for path in (ROOT / "jaxmon").glob(one)]
    found = {
        f"{path.name}: {name}"
        for path in paths
        for name in numbers_of(ast.parse(path.read_text()))
        if not name.lstrip("_").startswith("MOST")
        and name not in NO_LIMITS.get(path.name, ())
    }
    assert found == set()


def test_a_number_in_a_judgement_is_found():
    """As a constant of the module, and in a comparison."""
    source = "LATE = 60.0\n_A, _B = 1, 2\nif x > 0 or age >= 90 * y:\n    z = 5\n"
    assert set(numbers_of(ast.parse(source))) == {"LATE", "_A", "_B", "age >= 90 * y"}


def numbers_of(module: ast.Module) -> Iterator[str]:
    """Yield numeric constants of *module*, and comparisons with a number."""
    for node in module.body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Constant | ast.BinOp | ast.Tuple)
            and any(map(is_number, ast.walk(node.value)))
        ):
            names = ast.walk(node.targets[0])
            yield from (one.id for one in names if isinstance(one, ast.Name))
    for one in ast.walk(module):
        if isinstance(one, ast.Compare):
            sides = [*of(one.left), *(part for c in one.comparators for part in of(c))]
            numbers = [part.value for part in sides if isinstance(part, ast.Constant)]
            if any(type(n) in {int, float} and n not in {0, 1, 2} for n in numbers):
                yield ast.unparse(one)


def of(side: ast.expr) -> Iterator[ast.AST]:
    """Yield what *side* of a comparison is made of, without indices."""
    yield side
    if isinstance(side, ast.BinOp):
        yield from of(side.left)
        yield from of(side.right)


def is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in {int, float}
