"""How far a sweep is and how long the rest may take: on stderr, for people.

A terminal gets a bar, everything else a line every ``LINE_EVERY_S``.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

LINE_EVERY_S = 10.0


class Advance(Protocol):
    """Told of each cell that has ended."""

    def __call__(self, label: str) -> None:
        """Count one more cell; ``label`` says which."""


Progressing = Callable[[int, int], AbstractContextManager[Advance]]
"""Called with the number of cells and how many are there already."""


@contextmanager
def silent(total: int, resumed: int) -> Iterator[Advance]:
    """Show nothing."""
    yield lambda label: None


@contextmanager
def on_stderr(total: int, resumed: int) -> Iterator[Advance]:
    """Show a bar on a terminal, lines elsewhere."""
    show = _bar if sys.stderr.isatty() else _lines
    with show(total, resumed, sys.stderr) as advance:
        yield advance


def remaining_s(done: int, left: int, spent_s: float) -> float | None:
    """Estimate the seconds that the rest takes: at the mean pace so far, None before the first."""
    return None if done == 0 else spent_s / done * left


@contextmanager
def _bar(total: int, resumed: int, stream: TextIO) -> Iterator[Advance]:
    columns = (
        TextColumn("sweep"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
        TextColumn("{task.fields[label]}"),
    )
    with Progress(*columns, console=Console(file=stream), transient=True) as progress:
        task = progress.add_task("sweep", total=total, completed=resumed, left="", label="")
        start_s, done = time.perf_counter(), 0

        def advance(label: str) -> None:
            nonlocal done
            done += 1
            left = remaining_s(done, total - resumed - done, time.perf_counter() - start_s)
            progress.update(task, advance=1, label=label, left=f"{_duration(left)} left")

        yield advance


@contextmanager
def _lines(total: int, resumed: int, stream: TextIO) -> Iterator[Advance]:
    start_s = said_s = time.perf_counter()
    done = 0
    if resumed:
        print(f"sweep: {resumed} of {total} cells are there already", file=stream, flush=True)

    def advance(label: str) -> None:
        nonlocal done, said_s
        done += 1
        now_s = time.perf_counter()
        left = total - resumed - done
        if now_s - said_s >= LINE_EVERY_S or left == 0:
            said_s = now_s
            rest = _duration(remaining_s(done, left, now_s - start_s))
            print(
                f"sweep: {resumed + done} of {total} cells, {_duration(now_s - start_s)} spent, "
                f"about {rest} left ({label})",
                file=stream,
                flush=True,
            )

    yield advance


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
