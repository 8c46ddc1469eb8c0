"""Stable digests of configurations and files, the names that results are stored under."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def digest_of(value: Mapping[str, Any] | list[Any]) -> str:
    """Return 16 hex digits that name a JSON-like value, whatever the order of its keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def digest_of_file(path: Path) -> str:
    """Return 16 hex digits that name a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]
