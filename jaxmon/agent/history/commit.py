"""The commit of the checkout that a program runs from, without running git."""

from __future__ import annotations

from pathlib import Path


_DEEPEST = 16
_MOST_BYTES = 1 << 20
_DIGITS = 12


def commit_of(directory: Path) -> str:
    """
    Return the commit that is checked out in *directory* or a directory above it, empty
    if unknown. Uncommitted changes are not seen. Reads a few small files.
    """
    for place in (directory, *directory.parents)[:_DEEPEST]:
        git = place / ".git"
        if git.is_file():  # a worktree or a submodule
            git = place / _text(git).removeprefix("gitdir:").strip()
        if git.is_dir():
            return _head(git)
    return ""


def _head(git: Path) -> str:
    head = _text(git / "HEAD")
    if not head.startswith("ref:"):
        return _shortened(head)
    name = head.removeprefix("ref:").strip()
    common = git / (_text(git / "commondir") or ".")
    for found in (git, common):
        if commit := _shortened(_text(found / name)):
            return commit
    for line in _text(common / "packed-refs").splitlines():
        commit, _, packed = line.partition(" ")
        if packed == name:
            return _shortened(commit)
    return ""


def _shortened(commit: str) -> str:
    is_hex = commit and not commit.strip("0123456789abcdef")
    return commit[:_DIGITS] if is_hex else ""


def _text(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(_MOST_BYTES).strip()
    except OSError:
        return ""
