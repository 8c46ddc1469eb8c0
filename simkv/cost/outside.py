"""What a cost model was asked outside its measured range: what, how far, how often."""


class Outside:
    """Counts questions outside the measured range, by quantity. It changes no answer."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, float, float]] = {}

    def note(self, quantity: str, asked: float, measured: float) -> None:
        """Count one question, and keep the one that lies furthest out."""
        times, worst_asked, worst_measured = self._seen.get(quantity, (0, 0.0, 1.0))
        # Compared as asked / measured, without dividing by a range that ends at zero; of equal ones
        # the larger, whichever came first.
        if (asked * worst_measured, asked) >= (worst_asked * measured, worst_asked):
            worst_asked, worst_measured = asked, measured
        self._seen[quantity] = (times + 1, worst_asked, worst_measured)

    def sentences(self) -> list[str]:
        """Return a sentence for each quantity, in the order of their names."""
        lines = []
        for quantity, (times, asked, measured) in sorted(self._seen.items()):
            far = f", {asked / measured:.2f} times as far" if measured > 0 else ""
            lines.append(
                f"{quantity}: asked up to {asked:,.0f}, measured up to {measured:,.0f}{far} "
                f"({times:,} times); beyond it the fitted formula is extrapolated"
            )
        return lines
