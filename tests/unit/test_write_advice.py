"""The advice on causes, in the pages that list them."""

import pytest

from jaxmon.catalog import CAUSES
from jaxmon.symptoms.recompiles import WHAT_TO_DO
from tools import write_advice as tool


ROWS = "\n".join(f"| `{cause}` | by hand: `a \\| b` | old |" for cause in CAUSES)
ITEMS = "\n".join(f"- `{cause}`: old,\n  and longer" for cause in CAUSES)


def test_the_last_cell_of_a_row_is_written():
    """The rest of the row, and of the page, is left."""
    page = f"before\n\n{ROWS}\n\nafter\n"
    text = tool.written(page, tool._ROW)
    advice = WHAT_TO_DO["shape"]
    assert f"| `shape` | by hand: `a \\| b` | {advice} |\n" in text
    assert text.startswith("before\n\n| `")
    assert text.endswith(" |\n\nafter\n")
    assert "old" not in text
    assert tool.written(text, tool._ROW) == text


def test_an_item_of_a_list_is_written():
    """All its lines are replaced, and the items that name no cause are left."""
    text = tool.written(f"{ITEMS}\n- Something else.\n", tool._ITEM)
    assert "old" not in text
    assert "and longer" not in text
    assert text.endswith("\n- Something else.\n")
    assert max(map(len, text.splitlines())) <= 90
    assert tool.written(text, tool._ITEM) == text


def test_code_is_marked_up():
    """Markdown would make bold words of names with underscores around them."""
    text = tool.written(ROWS, tool._ROW)
    assert "`__eq__`" in text
    assert "`jax.clear_caches()`" in text
    assert "``" not in text


@pytest.mark.parametrize(
    "page", ["", f"{ROWS}\n{ROWS}", ROWS.replace("`shape`", "`x`")]
)
def test_a_page_without_a_cause_is_an_error(page):
    """So is one with a cause twice."""
    with pytest.raises(ValueError, match="have it on each cause, once"):
        tool.written(page, tool._ROW)
