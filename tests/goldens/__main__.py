"""Print how what jaxmon shows differs from the golden files, or write them."""

from __future__ import annotations

import argparse
import sys

from tests.goldens import compared, gathered, write


def main() -> int:
    """Return the exit code: 1 if something differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the files")
    given = parser.parse_args()
    found = gathered()
    diff = compared(found)
    sys.stdout.write(diff)
    if given.write:
        write(found)
    return int(bool(diff) and not given.write)


if __name__ == "__main__":
    sys.exit(main())
