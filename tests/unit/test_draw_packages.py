"""The picture of the packages: as the layers are, and complete."""

from tools import draw_packages as tool


def test_an_old_picture_is_redrawn():
    """Whatever stands between the marks is replaced, and the rest is left."""
    page = "before\n<!-- layers of packages -->\nold\n<!-- end -->\nafter\n"
    text = tool.drawn(page)
    assert text.startswith("before\n<!-- layers of packages -->\n\n```text\n__main__\n")
    assert text.endswith("\n```\n\n<!-- end -->\nafter\n")
    assert "old" not in text
    assert tool.drawn(text) == text


def test_a_package_without_a_description_is_found():
    """Naming it in the picture does not describe it."""
    page = tool.drawn("<!-- layers of packages -->\n<!-- end -->\n`cli/` and `cli.py`")
    missing = tool.undescribed(page)
    assert "agent" in missing
    assert "cli" not in missing
