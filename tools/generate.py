"""
Write the generated files, or check them with --check, of this checkout or in --out.

They are generated from the catalogue of metrics, the settings, the commands, the
objectives, the symptoms, the JSON documents, the import contracts and the JAX internals
in use.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from jaxmon.cli.main import load
from jaxmon.cli.main import main as jaxmon
from jaxmon.host.files import whole
from jaxmon_alerts import rules, slo
from jaxmon_dashboards import boards
from tools import (
    draw_packages,
    reference,
    write_advice,
    write_json,
    write_symptoms,
)


ROOT = Path(__file__).resolve().parent.parent
OWNED: tuple[str, ...] = ("alerts", "dashboards")
"""Directories whose files are all generated, beside the packages that make them."""


def render() -> dict[str, str]:
    """Return every generated file as text by path, relative to the repository."""
    return {
        "docs/cli.md": reference.commands(jaxmon, "jaxmon"),
        reference.INTERNALS: reference.internals(),
        "docs/metrics.md": reference.metrics(),
        reference.OPTIONS: reference.options_module(),
        "docs/settings.md": reference.settings(load("exporter")),
        "alerts/slo.yaml": slo.default(),
        **_in("alerts", rules.render()),
        **_in("dashboards", boards.render_all()),
        **write_json.render(),
        **write_symptoms.render(),
        **write_advice.render(),
        **draw_packages.render(),
    }


def _in(directory: str, files: dict[str, str]) -> dict[str, str]:
    return {f"{directory}/{name}": text for name, text in files.items()}


def left_over(root: Path, artifacts: Mapping[str, str]) -> list[str]:
    """Return the files in `OWNED` directories that are not artifacts."""
    found = (path for of in OWNED for path in (root / of).glob("*") if path.is_file())
    names = (path.relative_to(root).as_posix() for path in found)
    return sorted(name for name in names if name not in artifacts)


def main(arguments: list[str]) -> int:
    """Write the files, or print what would change; return the exit code."""
    parser = argparse.ArgumentParser("tools.generate", description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--out", type=Path, default=ROOT)
    options = parser.parse_args(arguments)
    artifacts = render()
    if not options.check:
        changed = whole.write_all(options.out, artifacts)
        for path in (unwanted := left_over(options.out, artifacts)):
            (options.out / path).unlink()
        print(*changed, *unwanted, sep="\n")
        return 0
    reports = list(whole.check(options.out, artifacts))
    reports += [f"extra: {path}\n" for path in left_over(options.out, artifacts)]
    print(*reports, sep="", end="")
    if reports:
        print(f"{len(reports)} generated file(s) out of date; run: make generate")
    return bool(reports)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
