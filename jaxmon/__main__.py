"""``python -m jaxmon`` is ``jaxmon``."""

from __future__ import annotations

from jaxmon.cli.entry import main


if __name__ == "__main__":
    main()
