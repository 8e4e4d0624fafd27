"""
What accelerators cost: a table of models and dollars per hour, given by the operator.

There is no built-in table: prices differ by contract, and a wrong one is worse than
none. An accelerator that answers no more is still paid for.
"""

from __future__ import annotations

import csv
import io
import logging
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from jaxmon.catalog import ACCELERATOR_COST_DOLLARS_PER_HOUR, ACCELERATOR_INFO
from jaxmon.errors import CommandError
from jaxmon.exposition.families import Family, Sample, series
from jaxmon.exposition.parse import labels


log = logging.getLogger("jaxmon.exporter")

_MAX_BYTES = 1 << 20
# Models named in the log, accelerators remembered: far more than a host has.
_MAX_SEEN = 1024


class Prices:
    """
    Prices by model. Any thread; an accelerator is looked up once.

    Args:
        dollars: per hour, by pattern. A pattern fits a model that contains it as
            whole words, in any case, ``*`` standing for anything: ``H100`` fits
            ``NVIDIA H100 80GB HBM3``, ``A10`` does not fit ``NVIDIA A100``. Of several
            that fit the longest wins.
    """

    def __init__(self, dollars: Mapping[str, float]) -> None:
        longest = sorted(dollars.items(), key=lambda item: -len(item[0]))
        self._rules = [(_expression(pattern), price) for pattern, price in longest]
        self._samples: dict[str, Sample | None] = {}
        self._unknown: set[str] = set()

    def of(self, model: str) -> float | None:
        """
        Return dollars per hour, `None` for a model that is not in the table.
        """
        for expression, price in self._rules:
            if expression.search(model):
                return price
        return None

    def family(self, families: Iterable[Family]) -> Family:
        """
        Return the price of each accelerator that *families* tell of.
        """
        known = (
            self._sample(name)
            for family in families
            if family.metric is ACCELERATOR_INFO
            for name, _ in family.samples
        )
        return Family(
            ACCELERATOR_COST_DOLLARS_PER_HOUR, [one for one in known if one is not None]
        )

    def _sample(self, info: str) -> Sample | None:
        if info not in self._samples:
            if len(self._samples) >= _MAX_SEEN:
                self._samples.clear()
            self._samples[info] = self._priced(labels(info.partition("{")[2]))
        return self._samples[info]

    def _priced(self, accelerator: Mapping[str, str]) -> Sample | None:
        model = accelerator["model"]
        price = self.of(model)
        if price is not None:
            metric = ACCELERATOR_COST_DOLLARS_PER_HOUR
            return series(metric, accelerator["uuid"]), price
        if model not in self._unknown and len(self._unknown) < _MAX_SEEN:
            self._unknown.add(model)
            log.warning("the model %r has no price; its cost is left out", model)
        return None


def from_flags(texts: Iterable[str]) -> dict[str, float]:
    """
    Return prices given as ``MODEL=DOLLARS``.

    Raises:
        CommandError: one of them is something else.
    """
    found = {}
    for text in texts:
        pattern, _, price = text.rpartition("=")
        found[pattern.strip()] = _dollars(pattern, price, f"--price {text!r}")
    return found


def from_file(path: Path) -> dict[str, float]:
    """
    Return prices from a YAML mapping of models to dollars, or from lines of
    ``model,dollars`` where the name ends in ``.csv``.

    Raises:
        CommandError: it cannot be read or holds something else.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_BYTES + 1)
        text = raw.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        msg = f"prices {path}: {reason}"
        raise CommandError(msg) from error
    if len(raw) > _MAX_BYTES:
        msg = f"prices {path}: longer than {_MAX_BYTES >> 20} MiB, too long"
        raise CommandError(msg)
    rows = _csv(path, text) if path.suffix.lower() == ".csv" else _yaml(path, text)
    return {
        pattern.strip(): _dollars(
            pattern, price, f"prices {path}, {pattern!r}: {price!r}"
        )
        for pattern, price in rows
    }


def _csv(path: Path, text: str) -> Iterable[tuple[str, Any]]:
    for number, row in enumerate(csv.reader(io.StringIO(text)), start=1):
        if not row or row[0].lstrip().startswith("#"):
            continue
        if [cell.strip().lower() for cell in row] == ["model", "dollars"]:
            continue  # a heading
        if len(row) != len(("model", "dollars")):
            msg = f"prices {path}: line {number} is not model,dollars"
            raise CommandError(msg)
        yield row[0], row[1]


def _yaml(path: Path, text: str) -> Iterable[tuple[str, Any]]:
    import yaml  # noqa: PLC0415 - few have such a table

    try:
        table = yaml.safe_load(text)
    except yaml.YAMLError as error:
        msg = f"prices {path}: not YAML: {str(error).splitlines()[0]}"
        raise CommandError(msg) from error
    if not isinstance(table, dict) or not all(isinstance(key, str) for key in table):
        msg = f"prices {path}: not a mapping of models to dollars, such as 'H100: 2.5'"
        raise CommandError(msg)
    yield from table.items()


def _dollars(pattern: str, price: object, where: str) -> float:
    try:
        # YAML's true is a number to Python.
        value = math.nan if isinstance(price, bool) else float(str(price))
    except ValueError:
        value = math.nan
    if not pattern.strip() or not math.isfinite(value) or value < 0:
        msg = (
            f"{where}: a price is a model and dollars per hour, 0 or more, such as "
            "H100=2.5"
        )
        raise CommandError(msg)
    return value


def _expression(pattern: str) -> re.Pattern[str]:
    parts = map(re.escape, pattern.split("*"))
    return re.compile(rf"(?<![^\W_])(?:{'.*'.join(parts)})(?![^\W_])", re.IGNORECASE)
