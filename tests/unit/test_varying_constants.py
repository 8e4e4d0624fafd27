"""Which constant two programs differ in is read from their HLO."""

import time

import pytest

from jaxmon.agent.cache.constants import varying_constant


NEVER = time.time() + 3600
OLDER = """HloModule jit_step, frontend_attributes={{fingerprint="{digest}"}}

%fused (p: f32[4]) -> f32[4] {{
  %p = f32[4]{{0}} parameter(0)
  %constant.1 = f32[] constant({value})
  %broadcast = f32[4]{{0}} broadcast(%constant.1), dimensions={{}}
  ROOT %add = f32[4]{{0}} add(%p, %constant.1), metadata={{op_name="add" {at}}}
}}
"""
NEWER = """HloModule jit_step, is_scheduled=true

FileNames
1 "/srv/train.py"
2 "/srv/model.py"

FunctionNames
1 "<module>"
2 "step"

FileLocations
1 {file_name_id=1 function_name_id=1 line=11 end_line=11 column=0 end_column=15}
2 {file_name_id=2 function_name_id=2 line=8 end_line=8 column=25 end_column=30}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}

""" + OLDER.partition("\n\n")[2].format(value="{value}", at="stack_frame_id=2").replace(
    "{{", "{"
)


def older(value: str, at: str = 'source_file="/srv/model.py" source_line=8') -> str:
    return OLDER.format(digest=value, value=value, at=at)


def newer(value: str) -> str:
    return NEWER.replace("{value}", value)


@pytest.mark.parametrize("text", [older, newer])
@pytest.mark.parametrize(
    ("value", "other"), [("1.5", "2.5"), ("{1, (2, 3)}", "{2, (2, 3)}")]
)
def test_one_constant_is_found_with_its_line(text, value, other):
    """As printed by JAX of several ages; a digest of the whole differs, too."""
    found = varying_constant(text(value), text(other), NEVER)

    assert found == "/srv/model.py:8"


@pytest.mark.parametrize(
    "other",
    [
        older("2.5").replace("add(", "subtract("),
        older("2.5").replace("f32[] constant", "s32[] constant"),
        older("2.5").replace("source_line=8", "source_line=9"),
        older("2.5") + "\n",
        older("1.5"),
        "",
    ],
)
def test_programs_that_differ_otherwise_or_not_at_all_have_none(other):
    """Operations, types, lines, and length."""
    assert varying_constant(older("1.5"), other, NEVER) == ""


def test_a_constant_without_a_line_and_an_edited_program_have_none():
    """Nothing is known of where it comes from, or it may be the edit."""
    assert varying_constant(older("1.5", ""), older("2.5", ""), NEVER) == ""
    assert varying_constant(older("1.5"), older("2.5"), since=0.0) == ""
