"""Regular expressions of slo.yaml, held against what the real promtool takes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from jaxmon.artifacts.slo.patterns import PatternError, check
from jaxmon.promql import Matcher
from tests.support import require_program


GOOD = (
    *("", "a", "a|b", "a||b", "|", "(a)", "()", "(?:a)", "(?P<n>a)", "(?i)a", "a(?i)b"),
    *("(?i-s:a)", "(?U)a+", "(?:)", "(?-i)a", "(?)a", "a*", "a*?", "a{2}?", "a{,5}"),
    *("a{0,1000}", "a{", "a{x}", "^*", "$+", r"\b*", "a{01}", "[a]", "[]a]", "[^]a]"),
    *("[a-z]", "[a-]", "[-a]", r"[\d-z]", "[[:alpha:]]", "[:alpha:]", "[[:^digit:]x]"),
    *(
        r"[\pL]",
        r"[\]]",
        "[--a]",
        "[+--]",
        "[a-b-c]",
        r"\pL",
        r"\p{Greek}",
        r"\p{^Greek}",
    ),
    *(r"\z", r"\A", r"\B", r"\d+", r"\x41", r"\x{10FFFF}", r"\Qa*+\E", r"\Qa\E*"),
    *(r"\_", r"\-", r"\ ", r"\a\f\n\r\t\v", r"\0", r"\12", r"\123", "ä", "(|a)*"),
    *("a|(?:b|c){2}", r"[\x{e4}-ü]", r"[\t-\r]", "(?s:.*)", r"[\a-\v]"),
)

BAD = (
    *("(?x)a", "(?a)b", "(?i", "(?", "(?:", "(?-)a", "(?i-)a", "(?=a)", "(?!a)"),
    *("(?<=a)b", "(?<!a)b", "(?>a)", "(?#c)", "(?P=n)", "(?P<>a)", "(?P<ä>a)", "(?&n)"),
    *(r"(a)\1", r"\1", r"\8", r"\18", "a**", "a*+", "a++", "a?+", "a{2}{3}", "a{2}??"),
    *(
        "a{2,1}",
        "a{1001}",
        "a{0,1001}",
        "{2}",
        "*a",
        "(*a)",
        "a|*",
        "(?i)*",
        "a{9999999}",
    ),
    *(
        "[z-a]",
        r"[a-\d]",
        "[]",
        "[^]",
        "[[:foo:]]",
        "[a",
        "[a-",
        r"[\b]",
        r"[\1]",
    ),
    *(r"[\x42-\x41]", r"\pX", r"\p", r"\Z", r"\C", r"\h", r"\N{DIGIT ONE}", r"\u00e4"),
    *(
        r"\x{110000}",
        r"\x{}",
        r"\x4",
        r"\Q(",
        r"\E",
        "\\",
        r"\ä",
        ")",
        "(",
        "((a)",
        "a)(",
    ),
)


@pytest.mark.parametrize("pattern", GOOD)
def test_what_prometheus_takes_is_taken(pattern: str) -> None:
    """Also what Python would not."""
    check(pattern)


@pytest.mark.parametrize("pattern", BAD)
def test_what_prometheus_refuses_is_refused(pattern: str) -> None:
    """Also what Python would take."""
    with pytest.raises(PatternError):
        check(pattern)


@pytest.mark.exhaustive
def test_promtool_agrees(tmp_path: Path) -> None:
    """About each of them."""
    promtool = require_program("promtool")
    refused = set()
    for pattern in (*GOOD, *BAD):
        matcher = Matcher("l", "=~", pattern)
        rule = {"record": "a:b", "expr": f"up{{{matcher}}}"}
        path = tmp_path / "rules.yaml"
        path.write_text(yaml.safe_dump({"groups": [{"name": "g", "rules": [rule]}]}))
        done = subprocess.run(
            [promtool, "check", "rules", path], capture_output=True, check=False
        )
        if done.returncode:
            refused.add(pattern)
    assert refused == set(BAD)
