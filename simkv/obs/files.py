"""Writes the tables of a run: all of them or none."""

import csv
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from simkv.errors import InputError
from simkv.obs.provenance import provenance
from simkv.obs.recorder import Tables

_MARK = "summary.json"


def write_tables(tables: Tables, out: Path, *, config: Mapping[str, Any]) -> None:
    """Write a run's results into a folder, replacing an earlier result there.

    Everything is written beside the folder first and renamed at the end, so that a full disk or an
    interruption leaves what was there before.

    Parameters
    ----------
    tables
        What ``simulate`` returned.
    out
        The folder; it may exist if it holds a result of simkv, or nothing.
    config
        The resolved configuration.

    Raises
    ------
    InputError
        If the folder holds something else.
    """
    check_out(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        fresh.chmod(0o755)
        _write(tables, fresh, config)
        if out.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
            try:
                out.rename(old / out.name)
                fresh.rename(out)
            finally:
                if not out.exists():
                    (old / out.name).rename(out)
                shutil.rmtree(old, ignore_errors=True)
        else:
            fresh.rename(out)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def check_out(out: Path) -> None:
    """Refuse a folder that results must not replace; asked before a long run too.

    Raises
    ------
    InputError
        If it holds something else than a result of simkv.
    """
    if not out.exists() or (out.is_dir() and ((out / _MARK).exists() or not any(out.iterdir()))):
        return
    raise InputError(f"{out} holds files that are no result of simkv; choose another folder")


def flatten(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a nested summary with dotted names, in order."""
    flat: dict[str, Any] = {}
    for name, value in nested.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def write_table(table: pa.Table, path: Path, metadata: Mapping[str, str]) -> None:
    """Write one table as Parquet with metadata in the file."""
    known = {key.encode(): value.encode() for key, value in metadata.items()}
    pq.write_table(table.replace_schema_metadata(known), path, compression="zstd")


def _write(tables: Tables, folder: Path, config: Mapping[str, Any]) -> None:
    metadata = {**provenance(), "config": json.dumps(config, sort_keys=True)}
    write_table(tables.requests, folder / "requests.parquet", metadata)
    write_table(tables.memory, folder / "memory.parquet", metadata)
    if tables.steps is not None:
        write_table(tables.steps, folder / "steps.parquet", metadata)
    result = {
        "summary": tables.summary,
        "notes": list(tables.notes),
        "warnings": tables.warnings,
        "provenance": provenance(),
    }
    _write_text(folder / "config.json", json.dumps(config, indent=1) + "\n")
    with (folder / "summary.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("metric", "value"))
        writer.writerows(flatten(tables.summary).items())
    _write_text(folder / _MARK, json.dumps(result, indent=1) + "\n")


def _write_text(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
