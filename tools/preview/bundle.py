"""The page that draws a board, made from its sources and from Grafana's packages."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path


SOURCE = Path(__file__).resolve().parent
CACHE = SOURCE.parent.parent / ".cache" / "preview"

_PINS = (".npmrc", "package.json", "package-lock.json")
# Loaded on demand by an editor that no panel has.
_LEFT_OUT = ("monaco-editor", "monaco-editor/*")
# As Grafana names the files of its font, which its packages lack.
_FONTS = {400: "Inter-Regular.woff2", 500: "Inter-Medium.woff2"}


class BundleError(Exception):
    """npm or esbuild is missing or failed."""


def bundle(cache: Path = CACHE) -> Path:
    """
    Return the directory with the page, ready to be served.

    Installs Grafana's packages when the lock has changed: about half a minute and
    400 MB. Making the page takes three seconds.

    Raises:
        BundleError: with what the program said.
    """
    modules = _packages(cache)
    made = cache / "site"
    shutil.rmtree(made, ignore_errors=True)
    command = [
        str(modules / ".bin" / "esbuild"),
        str(SOURCE / "page" / "main.jsx"),
        "--bundle",
        "--minify",
        "--format=esm",
        "--splitting",
        f"--outdir={made / 'bundle'}",
        '--define:process.env.NODE_ENV="production"',
        "--log-level=error",
        *(f"--external:{name}" for name in _LEFT_OUT),
    ]
    _run(command, cache, NODE_PATH=str(modules))
    shutil.copy(SOURCE / "page" / "index.html", made)
    icons = modules / "@grafana" / "ui" / "dist" / "public" / "img" / "icons"
    shutil.copytree(icons, made / "public" / "build" / "img" / "icons")
    fonts = made / "public" / "fonts" / "inter"
    fonts.mkdir(parents=True)
    for weight, name in _FONTS.items():
        font = f"inter-latin-{weight}-normal.woff2"
        shutil.copy(modules / "@fontsource/inter/files" / font, fonts / name)
    return made


def _packages(cache: Path) -> Path:
    """Return the directory of the installed packages."""
    modules = cache / "node_modules"
    installed = cache / "installed.json"
    lock = (SOURCE / "package-lock.json").read_text()
    if not installed.exists() or installed.read_text() != lock:
        installed.unlink(missing_ok=True)
        cache.mkdir(parents=True, exist_ok=True)
        for name in _PINS:
            shutil.copy(SOURCE / name, cache)
        _run(["npm", "ci", "--loglevel=error"], cache)
        installed.write_text(lock)
    return modules


def _run(command: list[str], directory: Path, **environ: str) -> None:
    try:
        subprocess.run(
            command,
            cwd=directory,
            env={**os.environ, **environ},
            capture_output=True,
            text=True,
            check=True,
        )
    except FileNotFoundError:
        msg = f"{command[0]} is not installed; the preview needs Node.js 20 and npm"
        raise BundleError(msg) from None
    except subprocess.CalledProcessError as error:
        msg = f"{Path(command[0]).name} failed:\n{error.stderr[-2000:]}"
        raise BundleError(msg) from None
