"""
What accelerators cost: a table of models and dollars per hour, given by the operator.

There is no built-in table: prices vary by contract, and a wrong one is worse than none.
An unresponsive accelerator still costs money.
"""

from __future__ import annotations

import csv
import io
import logging
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from jaxmon.catalog import ACCELERATOR_COST_DOLLARS_PER_HOUR, ACCELERATOR_INFO
from jaxmon.errors import CommandError, ConfigFileError, raised
from jaxmon.exposition.families import Family, Sample, samples_of, series
from jaxmon.exposition.parse import labels
from jaxmon.host.files.bounded import read_text
from jaxmon.host.formats.yaml_file import compose


log = logging.getLogger("jaxmon.exporter")

_TEXT = "tag:yaml.org,2002:str"
# Models named in the log, accelerators remembered: far more than a host has.
_MAX_SEEN = 1024


class Prices:
    """
    Prices by model. Thread-safe; an accelerator is looked up once.

    A pattern matches a model that contains it as whole words, in any case; ``*``
    matches anything: ``H100`` matches ``NVIDIA H100 80GB HBM3``, ``A10`` does not match
    ``NVIDIA A100``. Of several that match, the longest wins.
    """

    def __init__(self, dollars: Mapping[str, float]) -> None:
        longest = sorted(dollars.items(), key=lambda item: -len(item[0]))
        self._rules = [(_expression(pattern), price) for pattern, price in longest]
        self._sample = lru_cache(maxsize=_MAX_SEEN)(self._priced)
        self._unknown: set[str] = set()

    def of(self, model: str) -> float | None:
        """Return dollars per hour, `None` if the model is not in the table."""
        for expression, price in self._rules:
            if expression.search(model):
                return price
        return None

    def family(self, families: Iterable[Family]) -> Family:
        """Return the price of each accelerator in *families*."""
        infos = samples_of(families, ACCELERATOR_INFO)
        priced = filter(None, (self._sample(name) for name, _ in infos))
        return Family(ACCELERATOR_COST_DOLLARS_PER_HOUR, list(priced))

    def _priced(self, info: str) -> Sample | None:
        accelerator = labels(info.partition("{")[2])
        model = accelerator["model"]
        price = self.of(model)
        if price is not None:
            metric = ACCELERATOR_COST_DOLLARS_PER_HOUR
            return series(metric, accelerator["uuid"]), price
        if model not in self._unknown and len(self._unknown) < _MAX_SEEN:
            self._unknown.add(model)
            log.warning("no price for model %r; its cost is not exported", model)
        return None


def from_flags(texts: Iterable[str]) -> dict[str, float]:
    """Return prices given as ``MODEL=DOLLARS``; `CommandError` if one is invalid."""
    found = {}
    for text in texts:
        pattern, _, price = text.rpartition("=")
        found[pattern.strip()] = _dollars(pattern, price, f"--price {text!r:.60}")
    return found


def from_file(path: Path) -> dict[str, float]:
    """Return prices from a YAML mapping, or from ``model,dollars`` in ``.csv``."""
    found: dict[str, float] = {}
    with raised(CommandError, f"prices {path}", ConfigFileError, csv.Error):
        text = read_text(path)
        rows = _csv(text) if path.suffix.lower() == ".csv" else _yaml(text)
        for pattern, price in rows:
            where = f"prices {path}, {pattern!r:.60}: {price!r:.60}"
            if pattern.strip() in found:
                msg = f"{where}: duplicate price for this model"
                raise CommandError(msg)
            found[pattern.strip()] = _dollars(pattern, price, where)
    return found


def _csv(text: str) -> Iterator[tuple[str, str]]:
    heading = ["model", "dollars"]
    for number, row in enumerate(csv.reader(io.StringIO(text)), start=1):
        is_comment = not row or row[0].lstrip().startswith("#")
        if is_comment or [cell.strip().lower() for cell in row] == heading:
            continue
        if len(row) != len(heading):
            msg = f"line {number}: expected model,dollars"
            raise ConfigFileError(msg)
        yield row[0], row[1]


def _yaml(text: str) -> Iterator[tuple[str, str]]:
    import yaml  # noqa: PLC0415 - few have such a table

    table = compose(text)
    wanted = "not a mapping of models to dollars, such as 'H100: 2.5'"
    if not isinstance(table, yaml.MappingNode):
        raise ConfigFileError(wanted, line=1)
    for model, price in table.value:
        if model.tag != _TEXT:
            raise ConfigFileError(wanted, line=model.start_mark.line + 1)
        is_scalar = isinstance(price, yaml.ScalarNode)
        yield model.value, price.value if is_scalar else f"a {price.id}"


def _dollars(pattern: str, price: str, where: str) -> float:
    try:
        value = float(price) if price.isascii() else math.nan
    except ValueError:
        value = math.nan
    if not pattern.strip() or not math.isfinite(value) or value < 0:
        msg = (
            f"{where}: expected a model and a price in dollars per hour (0 or "
            "more), such as H100=2.5"
        )
        raise CommandError(msg)
    return value


def _expression(pattern: str) -> re.Pattern[str]:
    first, *parts = map(re.escape, pattern.split("*"))
    last = f".*{parts.pop()}" if parts else ""
    # Each part where it comes first: to try its later places as well, for each part,
    # finds nothing else and may take years.
    inner = "".join(f"(?>.*?{part})" for part in parts)
    return re.compile(
        rf"(?<![^\W_]){first}{inner}{last}(?![^\W_])", re.IGNORECASE | re.DOTALL
    )
