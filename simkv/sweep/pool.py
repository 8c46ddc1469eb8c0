"""Runs cells one after the other or in several processes; either way the store gets the same.

The pool is made of plain spawned processes and pipes, not of an executor, because it must do three
things that an executor does not: name the cell that killed its worker, stop at once on Ctrl-C, and
give the cells of one trace to one worker, since loading a trace may cost more than simulating it.
A worker writes its cells into the store itself; only sentences travel back.
"""

import signal
import threading
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from simkv.config.load import config_to_mapping
from simkv.config.run import RunConfig
from simkv.digest import digest_of
from simkv.errors import InputError, InvariantError, SimkvError
from simkv.sweep.grid import Cell
from simkv.sweep.store import Store, Tables
from simkv.workload.trace import Trace


class Simulate(Protocol):
    """Runs one configuration on a trace; a module's function, so that processes can be given it."""

    def __call__(self, config: RunConfig, trace: Trace | None = None) -> Tables:
        """Return the tables of the run."""


class Load(Protocol):
    """Makes the trace of one configuration: reads, transforms, resamples, generates."""

    def __call__(self, config: RunConfig) -> Trace:
        """Return the trace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What is done to a cell: everything that a worker needs besides the cell itself."""

    out: Path
    keep_requests: bool
    simulate: Simulate
    load: Load


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A cell has ended; ``failure`` is the sentence about an input that it could not run with."""

    cell: Cell
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bug:
    """A cell hit an error that is not the user's: its text, to be raised by the parent."""

    text: str


def run_cells(work: Work, cells: Sequence[Cell], *, workers: int) -> Iterator[Report]:
    """Run cells and report each as it ends, in no stated order.

    Raises
    ------
    InputError
        A cell could not be stored, or its worker died.
    InvariantError
        A cell met a bug in simkv.
    KeyboardInterrupt
        Ctrl-C or SIGTERM; finished cells are kept.
    """
    with _sigterm_is_ctrl_c():
        if workers <= 1 or len(cells) <= 1:
            yield from _run_here(work, cells)
        else:
            yield from _run_pool(work, cells, min(workers, len(cells)))


class _Runner:
    """Runs cells in this process and keeps the last trace, which the next cell likely shares."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._store = Store(work.out)
        self._trace: tuple[str, Trace] | None = None

    def run(self, cell: Cell) -> str | None:
        """Run and store a cell; return the failure if the input is at fault."""
        try:
            trace = self._load(cell)
            tables = self._work.simulate(cell.config, trace)
        except InputError as error:
            return str(error)
        # Outside of the try: what the disk does is no property of the cell.
        self._store.put(
            cell.id,
            cell.config,
            trace,
            tables,
            keep_requests=self._work.keep_requests,
        )
        return None

    def _load(self, cell: Cell) -> Trace:
        key = trace_key(cell)
        if self._trace is None or self._trace[0] != key:
            self._trace = None  # two traces at once may not fit
            self._trace = key, self._work.load(cell.config)
        return self._trace[1]


def trace_key(cell: Cell) -> str:
    """Return what cells that run on the same trace have in common."""
    mapping = config_to_mapping(cell.config)
    # The longest request that the model and the scheduler allow clips the trace.
    limits = [mapping["model"]["name"], mapping["sched"]["max_model_len"]]
    return digest_of({"workload": mapping["workload"], "seed": cell.seed, "limits": limits})


def _run_here(work: Work, cells: Sequence[Cell]) -> Iterator[Report]:
    runner = _Runner(work)
    for cell in sorted(cells, key=lambda cell: (trace_key(cell), cell.index)):
        try:
            failure = runner.run(cell)
        except SimkvError:
            raise
        except Exception as error:
            raise _bug(cell, traceback.format_exc()) from error
        yield Report(cell=cell, failure=failure)


class _Queue:
    """Cells that wait, by trace: a worker stays with its trace as long as it has cells."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self._waiting: dict[str, deque[Cell]] = {}
        self._taken: set[str] = set()
        for cell in cells:
            self._waiting.setdefault(trace_key(cell), deque()).append(cell)

    def next(self, worker: "_Worker") -> Cell | None:
        """Return the next cell of a worker: of its trace, of one nobody has, of the longest."""
        if not self._waiting:
            return None
        key = worker.trace_key
        if key not in self._waiting:
            unclaimed = [other for other in self._waiting if other not in self._taken]
            key = max(unclaimed or self._waiting, key=lambda other: len(self._waiting[other]))
        worker.trace_key = key
        self._taken.add(key)
        cell = self._waiting[key].popleft()
        if not self._waiting[key]:
            del self._waiting[key]
        return cell


class _Worker:
    """A process and what it is doing."""

    def __init__(self, work: Work) -> None:
        context = get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, work), daemon=True)
        self.process.start()
        theirs.close()
        self.cell: Cell | None = None
        self.trace_key = ""

    def give(self, cell: Cell | None) -> None:
        """Start the worker on a cell; None leaves it idle."""
        self.cell = cell
        if cell is not None:
            self.connection.send(cell)

    def take(self) -> Report:
        """Return the report that has arrived.

        Raises
        ------
        SimkvError
            The worker reports one, or died.
        """
        cell = self.cell
        assert cell is not None, "an idle worker reports nothing"
        try:
            message = self.connection.recv()
        except (EOFError, ConnectionError):
            self.process.join()
            raise _death(cell, self.process.exitcode) from None
        if isinstance(message, SimkvError):
            raise message
        if isinstance(message, _Bug):
            raise _bug(cell, message.text)
        return Report(cell=cell, failure=message)


def _run_pool(work: Work, cells: Sequence[Cell], num_workers: int) -> Iterator[Report]:
    queue = _Queue(cells)
    workers: list[_Worker] = []
    try:
        for _ in range(num_workers):
            workers.append(_Worker(work))
            workers[-1].give(queue.next(workers[-1]))
        while busy := {worker.connection: worker for worker in workers if worker.cell is not None}:
            # A worker's death closes its pipe, so waiting on pipes sees that too.
            for connection in wait(list(busy)):
                worker = busy[connection]  # type: ignore[index]
                report = worker.take()
                worker.give(queue.next(worker))
                yield report
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.join()
            worker.connection.close()


def _serve(connection: "Connection[Any, Any]", work: Work) -> None:
    """Run the cells that arrive until the other end closes."""
    # Ctrl-C reaches every process of the terminal; what it means is the parent's decision.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    runner = _Runner(work)
    while True:
        try:
            cell: Cell = connection.recv()
        except (EOFError, ConnectionError):
            return
        try:
            message: str | SimkvError | _Bug | None = runner.run(cell)
        except InputError as error:
            message = InputError(str(error))
        except Exception:
            message = _Bug(text=traceback.format_exc())
        try:
            connection.send(message)
        except (BrokenPipeError, ConnectionError):
            return  # the parent is gone; the cell is stored


def _named(cell: Cell) -> str:
    return f"cell {cell.id} ({cell.arm.label}, seed {cell.seed})"


def _bug(cell: Cell, text: str) -> InvariantError:
    return InvariantError(f"{_named(cell)} met a bug in simkv:\n{text}")


def _death(cell: Cell, exit_code: int | None) -> InputError:
    how = f"exit code {exit_code}"
    if exit_code is not None and exit_code < 0:
        how = f"killed by {signal.Signals(-exit_code).name}"
    return InputError(
        f"a worker died ({how}) while it ran {_named(cell)}; if memory ran out, use fewer "
        "--workers; finished cells are kept, the same command goes on from there"
    )


@contextmanager
def _sigterm_is_ctrl_c() -> Iterator[None]:
    """Let SIGTERM end a sweep as Ctrl-C does, with its workers; only the main thread may ask."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
