"""Where a result comes from: what a table's metadata says about its making."""

import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from simkv.obs.schema import SCHEMA_VERSION

_LIBRARIES = ("numpy", "scipy", "simpy", "pyarrow")


def provenance() -> dict[str, str]:
    """Return versions, commit and platform; no time of day, so that equal runs give equal bytes."""
    return {
        "simkv": _version("simkv"),
        "commit": _commit(),
        "schema": str(SCHEMA_VERSION),
        "python": platform.python_version(),
        "machine": platform.machine(),
        **{name: _version(name) for name in _LIBRARIES},
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"


@cache
def _commit() -> str:
    """Return the commit of the checkout that runs, empty outside one."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return ""
    try:
        result = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return ""
    return result.stdout.strip()
