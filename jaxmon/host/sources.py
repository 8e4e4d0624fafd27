"""Whose a source file is, by its path, and how it is shown."""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path


USER, GENERATED, LIBRARY, JAX = range(4)
"""Tiers, from the user's files to the least useful ones."""

# Packages between a program and JAX: libraries built on it, and their dependencies. A
# program installed as a package is not on the list, so its lines are the user's.
LIBRARIES = frozenset(
    """
    absl blackjax brax chex clu diffrax distrax e3nn_jax einops equinox evosax
    fastapi flax grain gymnasium gymnax haiku hydra jax jaxlib jaxopt jaxtyping
    jmp jraph keras lineax mctx ml_collections numpy numpyro omegaconf optax
    optimistix orbax paxml penzai praxis rlax scipy starlette t5x tensorflow
    tensorflow_probability transformers uvicorn
    """.split()  # noqa: SIM905 - a list of words
)
"""Names of these packages; those of servers and settings call the program."""

_JAX = ("jax", "jaxlib", "jaxmon")

# A prefix of the files that run in a program. The demo's programs lie elsewhere, since
# they are ordinary user programs.
OURS = os.path.join(Path(__file__).parent.parent, "")  # noqa: PTH118 - a prefix of files

_INSTALLED = ("site-packages", "dist-packages")
_STANDARD_LIBRARY = r"/lib(?:64)?/python3(?:\.\d+)?/"


def tier(file: str) -> int:
    """Return how far *file* is from the user's own: 0 if it is one of these."""
    if not file or file.startswith(OURS):
        return JAX
    if file.startswith("<"):
        # Input to an interpreter is the user's; code from exec() may be.
        return USER if file.startswith(("<stdin", "<ipython")) else GENERATED
    package = package_of(file)
    if package in _JAX:
        return JAX
    standard = not package and re.search(_STANDARD_LIBRARY, file)
    return LIBRARY if standard or package in LIBRARIES else USER


@functools.lru_cache(512)
def package_of(file: str) -> str | None:
    """Return the top-level package or module that *file* belongs to, if installed."""
    parts = file.split(os.sep)  # noqa: PTH206 - not worth a Path for each file
    for at in range(len(parts) - 2, -1, -1):
        if parts[at] in _INSTALLED:
            return parts[at + 1].removesuffix(".py")
    return None


def display_path(file: str) -> str:
    """Return *file* relative to the working, package or home directory."""
    package = package_of(file)
    if package is not None:
        return file[file.rindex(f"{os.sep}{package}") + 1 :]
    for find, prefix in ((_directory, ""), (_home, "~/")):
        base = find()
        if len(base) > 1 and file.startswith(f"{base}{os.sep}"):
            return prefix + file[len(base) + 1 :]
    return file


def _home() -> str:
    return os.path.expanduser("~")  # noqa: PTH111 - a Path of an unknown one raises


def _directory() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - text is what is compared
    except OSError:  # deleted
        return ""
