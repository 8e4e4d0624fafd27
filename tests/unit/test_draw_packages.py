"""The picture of the packages: as the layers are, and complete."""

import runpy

import pytest

from tests.helpers.processes import ROOT


@pytest.fixture(scope="module")
def tool():
    """Provide the names of the tool."""
    return runpy.run_path(str(ROOT / "tools" / "draw_packages.py"))


def test_the_picture_is_up_to_date(tool):
    """What the page shows is what the contracts of pyproject.toml say."""
    assert tool["main"](["--check"]) == 0


def test_an_old_picture_is_redrawn(tool):
    """Whatever stands between the marks is replaced, and the rest is left."""
    page = "before\n<!-- layers of packages -->\nold\n<!-- end -->\nafter\n"
    text = tool["drawn"](page)
    assert text.startswith("before\n<!-- layers of packages -->\n\n```text\n__main__\n")
    assert text.endswith("\n```\n\n<!-- end -->\nafter\n")
    assert "old" not in text
    assert tool["drawn"](text) == text


def test_a_package_without_a_description_is_found(tool):
    """Naming it in the picture does not describe it."""
    page = tool["drawn"](
        "<!-- layers of packages -->\n<!-- end -->\n`cli/` and `cli.py`"
    )
    missing = tool["undescribed"](page)
    assert "agent" in missing
    assert "cli" not in missing
