"""Where the data files that ship with simkv are: trace samples and cost profiles."""

from pathlib import Path

_PACKAGE = Path(__file__).parent


def asset_folder(kind: str) -> Path:
    """Return the folder of one kind of shipped data, ``samples`` or ``profiles``.

    A wheel carries ``traces/`` inside the package, a checkout beside it.
    """
    inside = _PACKAGE / "traces" / kind
    return inside if inside.is_dir() else _PACKAGE.parent / "traces" / kind
