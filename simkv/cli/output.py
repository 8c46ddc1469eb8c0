"""What the verbs share about output: results on stdout, the rest on stderr."""

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

from cyclopts import Parameter

Json = Annotated[bool, Parameter(name="--json", negative="", show_default=False)]
Sets = Annotated[
    tuple[str, ...],
    Parameter(name="--set", negative="", show_default=False, allow_leading_hyphen=False),
]


def examples(*commands: str) -> str:
    """Return the end of a help page."""
    return "\n".join(["Examples:", *(f"  {command}" for command in commands), ""])


def print_json(value: Any) -> None:
    """Print a value on stdout for machines: two spaces, keys in their order, no NaN."""
    has_unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    print(json.dumps(_finite(value), indent=2, ensure_ascii=not has_unicode))


def _finite(value: Any) -> Any:
    """Return a value with null where JSON has no number."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def warn(sentences: Iterable[str], *, kind: str = "warning") -> None:
    """Print warnings, or what else ``kind`` says, on stderr, one a line."""
    for sentence in sentences:
        print(f"simkv: {kind}: {sentence}", file=sys.stderr)


def print_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, num_text_columns: int = 1
) -> None:
    """Print aligned columns: the first ones, text, to the left, and numbers to the right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for row in (header, *rows):
        cells = [
            cell.ljust(width) if index < num_text_columns else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())


@contextmanager
def share_shown(what: str) -> Iterator[Callable[[float], None] | None]:
    """Show the done share of something long on a terminal's stderr; elsewhere show nothing."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=1.0)
        yield lambda share: progress.update(task, completed=share)
