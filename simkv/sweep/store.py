"""Finished cells on disk, each in a folder named by its digest.

::

    OUT/sweep.json           marks the folder as a sweep's, and says which
    OUT/cells/<id>/          config.json, summary.json, memory.parquet, maybe requests.parquet,
                             manifest.json (digest of each of them)
    OUT/cells/.<id>.<n>.tmp  a cell being written

A cell is written under a temporary name and renamed, so it is there whole or not at all, whatever
kills the writer; what is there is checked against its manifest before it counts. Two sweeps may
share a folder: equal names mean equal content, and the second to finish a cell drops its own.
"""

import errno
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from simkv.config.load import config_to_mapping
from simkv.config.run import RunConfig
from simkv.digest import digest_of_file
from simkv.errors import InputError
from simkv.obs.schema import SCHEMA_VERSION
from simkv.workload.trace import Trace

MARKER = "sweep.json"
FORMAT = "simkv-sweep"


class Tables(Protocol):
    """What of a run's tables is kept; ``simkv.sim.simulate.Tables`` is one."""

    @property
    def requests(self) -> pa.Table:
        """One row a request."""

    @property
    def memory(self) -> pa.Table:
        """Memory accounts over time, in a bounded number of rows."""

    @property
    def summary(self) -> Mapping[str, Any]:
        """Nested metrics."""

    @property
    def warnings(self) -> list[str]:
        """Sentences for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What a finished cell says.

    Parameters
    ----------
    summary, warnings
        Of the run.
    trace_notes, granularity_tokens
        Of its trace.
    """

    summary: Mapping[str, Any]
    warnings: tuple[str, ...]
    trace_notes: tuple[str, ...]
    granularity_tokens: int


class Store:
    """The cells of one folder."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self._cells = out / "cells"

    def open(self) -> None:
        """Make the folder, or take one that a sweep made; sweep up what a killed writer left.

        Raises
        ------
        InputError
            The folder holds something else, or cannot be made.
        """
        if self.out.exists() and not self.out.is_dir():
            raise InputError(f"{self.out}: is a file; give a folder for the results")
        if self.out.is_dir() and any(self.out.iterdir()) and not self._is_ours():
            raise InputError(
                f"{self.out}: holds something that is no sweep; give an empty or a new folder"
            )
        with one_sentence(self.out):
            self._cells.mkdir(parents=True, exist_ok=True)
            for left in self._cells.glob(".*.tmp"):
                if not _is_alive(left):
                    shutil.rmtree(left, ignore_errors=True)

    def _is_ours(self) -> bool:
        if not (self.out / MARKER).exists():
            # A sweep killed between its first two steps leaves an empty cells folder.
            return [entry.name for entry in self.out.iterdir()] == ["cells"]
        return read_marker(self.out) is not None

    def find(self, cell_id: str) -> tuple[Stored | None, str]:
        """Return a finished cell if it is there and whole, and else why it is not ("": absent)."""
        folder = self._cells / cell_id
        if not folder.exists():
            return None, ""
        try:
            manifest = json.loads((folder / "manifest.json").read_text())
            if manifest["cell"] != cell_id or manifest["schema"] != SCHEMA_VERSION:
                return None, "belongs to something else"
            for name, digest in manifest["files"].items():
                if digest_of_file(folder / name) != digest:
                    return None, f"{name} was changed after it was written"
            summary = json.loads((folder / "summary.json").read_text())
        except FileNotFoundError as error:
            return None, f"{Path(str(error.filename)).name} is missing"
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None, "is not readable"
        return (
            Stored(
                summary=summary["summary"],
                warnings=tuple(summary["warnings"]),
                trace_notes=tuple(summary["trace_notes"]),
                granularity_tokens=int(summary["granularity_tokens"]),
            ),
            "",
        )

    def discard(self, cell_id: str) -> None:
        """Remove a cell that is not whole, or what stands in its place."""
        folder = self._cells / cell_id
        if folder.is_dir():
            shutil.rmtree(folder, ignore_errors=True)
        else:
            folder.unlink(missing_ok=True)

    def put(
        self,
        cell_id: str,
        config: RunConfig,
        trace: Trace,
        tables: Tables,
        *,
        keep_requests: bool = False,
    ) -> None:
        """Write a finished cell, whole or not at all.

        Raises
        ------
        InputError
            The disk is full, or the folder cannot be written.
        """
        temporary = self._cells / f".{cell_id}.{os.getpid()}.tmp"
        try:
            with one_sentence(self.out):
                shutil.rmtree(temporary, ignore_errors=True)
                temporary.mkdir()
                _write_json(temporary / "config.json", config_to_mapping(config))
                said = {
                    "summary": tables.summary,
                    # A run repeats what its trace says; here it is told apart.
                    "warnings": [text for text in tables.warnings if text not in trace.notes],
                    "trace_notes": list(trace.notes),
                    "granularity_tokens": trace.granularity_tokens,
                }
                _write_json(temporary / "summary.json", said)
                pq.write_table(tables.memory, temporary / "memory.parquet")
                if keep_requests:
                    pq.write_table(tables.requests, temporary / "requests.parquet")
                manifest = {
                    "cell": cell_id,
                    "schema": SCHEMA_VERSION,
                    "files": {
                        file.name: digest_of_file(file) for file in sorted(temporary.iterdir())
                    },
                }
                _write_json(temporary / "manifest.json", manifest)
                self._move_in(temporary, self._cells / cell_id)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _move_in(self, temporary: Path, final: Path) -> None:
        try:
            temporary.rename(final)
        except OSError as error:
            # Another sweep in this folder was first; its cell is the same.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise


def read_marker(out: Path) -> dict[str, Any] | None:
    """Return what ``sweep.json`` of a folder says, None where the folder is no sweep's."""
    try:
        marker = json.loads((out / MARKER).read_text())
    except (OSError, ValueError):
        return None
    return marker if isinstance(marker, dict) and marker.get("format") == FORMAT else None


def write_whole(path: Path, data: bytes) -> None:
    """Write a file under a temporary name and rename it, so that nothing half-written is seen."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with one_sentence(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(data)
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def json_bytes(value: Any) -> bytes:
    """Return JSON for people and machines, keys in the order given, with an end of line."""
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


@contextmanager
def one_sentence(out: Path) -> Iterator[None]:
    """Turn what a disk can do to a writer into one sentence.

    Raises
    ------
    InputError
        In place of an ``OSError``.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            advice = "the disk is full; free some and run the same command again to go on"
        else:
            advice = f"cannot be written: {error.strerror or error}"
        raise InputError(f"{out}: {advice}") from error


def _write_json(path: Path, value: Any) -> None:
    path.write_bytes(json_bytes(value))


def _is_alive(temporary: Path) -> bool:
    """Say whether the process that writes a temporary folder still runs on this machine."""
    try:
        os.kill(int(temporary.name.split(".")[-2]), 0)
    except (ValueError, IndexError, ProcessLookupError):
        return False
    except PermissionError:
        return True
    return True
