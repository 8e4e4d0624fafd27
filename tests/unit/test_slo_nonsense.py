"""
An ``slo.yaml`` that makes no sense is refused with file and line, whatever it says.
"""

from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest

from jaxmon.errors import SloError
from jaxmon.limits import LIMITS
from jaxmon_alerts import slo
from jaxmon_alerts.rules import RuleOptions, render
from tests.helpers.processes import some


SCALARS = (
    *("!!int abc", "!!int 0x", "!!float abc", "!!float inf", "!!float 1e999", ".nan"),
    *(
        ".inf",
        "-.inf",
        "2026-01-01",
        "!!timestamp x",
        "!!binary abc",
        "!!python/name:x",
    ),
    *("!!null x", "!!bool 7", "!!set {a}", "!!omap [a: 1]", "? [a]", "*none", "&a *a"),
    *("<<", "{<<: 5}", '"\\0"', '"\\uD800"', '"\\x1b[31m"', '"\\L"', "9" * 5000, "_"),
    *("9" * 5000 + "d", "9" * 300 + "w", "999999999w", "\u0663d", "[" * 50 + "]" * 50),
    *("[" * 100_000, "{a: " * 100_000, "!", "!<", "%", "@", "`", "|+9", "'", '"', "\t"),
    "a" * 100_000,
)
KEYS = ("slos", "service", "owner", "period", "alerts")
OF_AN_SLO = (
    *("name", "title", "description", "objective", "indicator", "owner", "period"),
    *("by", "page", "deploy_noise", "minimum_events", "minimum_errors"),
)
# As little as a file may have, so that it is read quickly.
LEAST = """
slos:
- name: a
  title: A
  description: B
  objective: 99%
  indicator:
    bad: jaxmon_requests_total{outcome="error"}
    total: jaxmon_requests_total
burn:
- {long: 1h, short: 5m, rate: 14.4, severity: page}
limits:
"""
OF_AN_INDICATOR = ("bad", "total", "good", "histogram", "above", "timestamp", "within")


@pytest.mark.parametrize("scalar", some(SCALARS, 2), ids=lambda text: repr(text[:20]))
def test_any_scalar_anywhere(scalar, tmp_path):
    """Whatever a value or key is, it is used, or refused with file and line."""
    places = [f"{key}: {scalar}" for key in KEYS]
    places += [f"slos:\n- {key}: {scalar}" for key in OF_AN_SLO]
    places += [f"slos:\n- indicator: {{{key}: {scalar}}}" for key in OF_AN_INDICATOR]
    places += [scalar, f"{scalar}: 1", f"slos: [{scalar}]", f"? {scalar}\n: 1"]
    assert refused(places, tmp_path / "slo.yaml") == []


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_any_scalar_as_a_limit(step, tmp_path):
    """Each limit is tried with each scalar; with each change, with every seventh."""
    places = [f"{LEAST}  {n}: {s}\n" for n, s in product(LIMITS, SCALARS)]
    assert step == 1 or len(SCALARS) % step  # each scalar has its limits
    path = tmp_path / "slo.yaml"
    path.write_text(LEAST + "  stalled_after: 10m\n")
    assert slo.load(path).limits.stalled_after == "10m"
    taken = refused(places[::step], path)
    assert len(taken) * step < len(LIMITS)


def refused(texts: list[str], path: Path) -> list[str]:
    """Assert that *texts* are refused with file and line; return those that are not."""
    taken = []
    for text in texts:
        path.write_text(text, encoding="utf-8")
        message = ""
        try:
            slo.load(path)
        except SloError as error:
            message = str(error)
        if not message:
            taken.append(text)
            continue
        assert message.startswith(str(path))
        assert len(message) < 1200
        assert "\n" not in message
    return taken


@pytest.mark.parametrize("scalar", some(SCALARS), ids=lambda text: repr(text[:20]))
def test_any_scalar_in_a_good_file(scalar, tmp_path):
    """In a file that is right otherwise, too: what is taken can be built."""
    # Without its limits: the test above has tried them.
    objectives, _, _ = slo.default().partition("\nlimits:\n")
    shipped = f"{objectives}\n".splitlines(keepends=True)
    path = tmp_path / "slo.yaml"
    tried = {""}
    found = None
    for number, line in enumerate(shipped):
        key, colon, _ = line.partition(": ")
        if not colon or key.lstrip(" -#") in tried:
            continue
        tried.add(key.lstrip(" -#"))
        changed = [*shipped[:number], f"{key}: {scalar}\n", *shipped[number + 1 :]]
        path.write_text("".join(changed), encoding="utf-8")
        with suppress(SloError):
            found = slo.load(path)
    # The last one that was taken stands for all: rendering takes its time.
    if found is not None:
        for text in render(found, RuleOptions(scale=60)).values():
            assert text.encode()


@pytest.mark.parametrize("size", [10 << 20, (1 << 20) - 100])
def test_a_large_file(size, tmp_path):
    """One that no person wrote is refused by its size, or by its first mistake."""
    one = "- {name: a, title: b}\n"
    path = tmp_path / "slo.yaml"
    path.write_text("slos:\n" + one * (size // len(one)))
    with pytest.raises(SloError, match=r"too large \(limit 1 MiB|too many values|:2:"):
        slo.load(path)


def test_a_byte_order_mark(tmp_path):
    """Editors of other systems write one."""
    path = tmp_path / "slo.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + slo.default().encode())
    assert slo.load(path) == slo.load()
