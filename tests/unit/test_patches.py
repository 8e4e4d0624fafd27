"""Replaced attributes, and the way back."""

from types import ModuleType

from jaxmon.agent.jaxlink.patches import Patches


def test_puts_back_what_was_there_in_reverse() -> None:
    """An attribute replaced twice ends as it was; a second undo does nothing."""
    module = ModuleType("module")
    module.__dict__["name"] = original = object()
    patches = Patches()
    patches.replace(module, "name", object())
    patches.replace(module, "name", object())

    patches.undo()
    assert module.__dict__["name"] is original
    module.__dict__["name"] = later = object()
    patches.undo()

    assert module.__dict__["name"] is later


def test_leaves_what_somebody_else_put_there() -> None:
    """Their replacement, and their removal, stand."""
    module = ModuleType("module")
    module.__dict__.update(replaced=1, removed=2)
    patches = Patches()
    patches.replace(module, "replaced", "ours")
    patches.replace(module, "removed", "ours")
    module.__dict__["replaced"] = "theirs"
    del module.__dict__["removed"]

    patches.undo()

    assert module.__dict__["replaced"] == "theirs"
    assert "removed" not in module.__dict__
