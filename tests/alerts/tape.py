"""A series as promtool reads it: what was scraped, and what no longer was."""

from dataclasses import dataclass, field


@dataclass
class Tape:
    """The samples of one series so far, one at most for each tick."""

    terms: list[str] = field(default_factory=list)
    ticks: int = 0
    present: bool = False

    def write(self, at: int, value: float, slope: float = 0.0, ticks: int = 1) -> None:
        """Add samples from tick *at* on; there are none between the last and these."""
        self._skip(at)
        first = f"{value:.12g}"
        self.terms.append(first if ticks == 1 else f"{first}{slope:+.12g}x{ticks - 1}")
        self.ticks, self.present = at + ticks, True

    def end(self, at: int) -> None:
        """Mark at tick *at* that a scrape lacks the series, if the last one had it."""
        if self.present:
            self._skip(at)
            self.terms.append("stale")
            self.ticks, self.present = at + 1, False

    def text(self, ticks: int) -> str:
        """Return the samples of so many ticks, in promtool's notation."""
        self._skip(ticks)
        return " ".join(self.terms)

    def _skip(self, to: int) -> None:
        if to > self.ticks:
            self.terms.append(f"_x{to - self.ticks}")
            self.ticks = to
