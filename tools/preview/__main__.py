"""
Draw the dashboards with Grafana's own components, without a Grafana.

    python -m tools.preview --prometheus http://localhost:9090 --out DIR
    python -m tools.preview --prometheus URL --board oncall --var job=web --from now-1h
    python -m tools.preview --prometheus URL --serve 8000
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from pathlib import Path
from typing import Any

from tools.preview.browser import BrowserError, View, chromium, draw, picture
from tools.preview.bundle import BundleError, bundle
from tools.preview.server import serving


CHOSEN = ("width", "theme", "first", "last", "scrape", "expand")
"""Arguments that are fields of a `View`."""


def main() -> int:
    """Run the command; return the exit code: 1 if a panel shows an error."""
    arguments = _parser().parse_args()
    names = arguments.board or sorted(
        path.stem for path in arguments.boards.glob("*.json")
    )
    try:
        site = bundle()
        with serving(
            site, arguments.boards, arguments.prometheus, arguments.serve
        ) as url:
            if arguments.serve:
                print("\n".join(f"{url}?board={name}" for name in names))
                threading.Event().wait()
            arguments.out.mkdir(parents=True, exist_ok=True)
            with chromium() as browser:
                return max([_draw(browser, url, name, arguments) for name in names])
    except (BrowserError, BundleError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 0


def _draw(browser: Any, url: str, name: str, arguments: argparse.Namespace) -> int:
    given = {key: of for key, of in vars(arguments).items() if key in CHOSEN}
    view = View(name, variables=_variables(arguments.var), **given)
    report = draw(browser, url, view)
    picture(browser, arguments.out / f"{name}.png", view)
    path = arguments.out / f"{name}.json"
    path.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    panels = report["panels"]
    for panel in panels:
        if panel["state"] == "error" or panel["warnings"]:
            text = "; ".join([panel["text"], *panel["warnings"]])
            print(f"{name}: {panel['title']}: {text}")
    failed = sum(panel["state"] == "error" for panel in panels)
    empty = sum(panel["state"] == "empty" for panel in panels)
    counts = f"{len(panels)} panels, {empty} empty, {failed} failed"
    print(f"{arguments.out / name}.png: {counts}")
    return int(failed > 0)


def _variables(texts: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for text in texts:
        name, _, value = text.partition("=")
        found.setdefault(name, []).append(value)
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.preview",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--prometheus", metavar="URL", required=True, help="server with the data")
    add("--boards", metavar="DIR", type=Path, default=Path("dashboards"))
    add("--board", metavar="NAME", action="append", help="repeatable; default: all")
    add("--out", metavar="DIR", type=Path, default=Path(".cache/preview/pictures"))
    add("--var", metavar="NAME=VALUE", action="append", default=[], help="repeatable")
    add("--from", dest="first", metavar="TIME", default="", help="such as now-1h")
    add("--to", dest="last", metavar="TIME", default="", help="default: now")
    add("--scrape", metavar="INTERVAL", default="15s", help="of the data source")
    add("--width", type=int, default=1440, help="pixels; default: 1440")
    add("--theme", choices=("dark", "light"), default="dark")
    add("--expand", action="store_true", help="open the collapsed rows")
    add("--serve", metavar="PORT", type=int, default=0, help="only serve the page")
    return parser


if __name__ == "__main__":
    sys.exit(main())
