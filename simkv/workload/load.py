"""From a path or a configured workload to a trace.

Which files a path means and what format they have is decided here; reading them is the format's.
"""

import dataclasses
from pathlib import Path

from simkv.assets import asset_folder
from simkv.errors import TraceError
from simkv.workload.readers.format import Format, ReadOptions, read_head
from simkv.workload.readers.formats import FORMATS, find_format
from simkv.workload.servegen import ServeGen
from simkv.workload.servegen import generate as generate_servegen
from simkv.workload.source import TraceFile, Workload
from simkv.workload.synthetic import generate
from simkv.workload.trace import Trace
from simkv.workload.transform import apply

_SAMPLE = "sample:"
# What a folder of traces may hold beside traces is passed by.
_SUFFIXES = frozenset({".csv", ".json", ".jsonl", ".parquet"})


def load(workload: Workload, *, seed: int, max_model_len: int | None = None) -> Trace:
    """Make the trace that a configuration asks for, ready to be simulated.

    Parameters
    ----------
    workload
        What the configuration says.
    seed
        Root seed, of generators and of what a transform draws.
    max_model_len
        The model's limit on prompt and output together, for a transform that clips to it.

    Raises
    ------
    InputError
        Where there is nothing to read, it cannot be read, or nothing is left of it.
    """
    if isinstance(workload, TraceFile):
        trace = read_trace(
            workload.path, format=workload.format, tokenizer=workload.tokenizer, seed=seed
        )
        return apply(trace, workload.transform, seed=seed, max_model_len=max_model_len)
    if isinstance(workload, ServeGen):
        return generate_servegen(workload, seed=seed)
    return generate(workload, seed=seed)


def read_trace(
    path: str | Path, *, format: str = "auto", tokenizer: str | Path | None = None, seed: int = 0
) -> Trace:
    """Read a trace.

    Parameters
    ----------
    path
        A file; a folder, whose files are read as one trace in the order of their names; or
        ``sample:NAME`` for a sample that ships with simkv.
    format
        Name of the format; ``auto`` recognises it by the first file's first bytes.
    tokenizer
        ``tokenizer.json`` for formats that hold text; None counts words.
    seed
        Root seed, for formats that describe a generator.

    Raises
    ------
    TraceError
        Where there is nothing to read, or it cannot be read.
    InputError
        Where there is no such format or tokenizer.
    """
    chosen = None if format == "auto" else find_format(format)
    files, notes = _files(path)
    filled = [file for file in files if read_head(file).data.strip()]
    if not filled:
        raise TraceError("holds nothing", file=path)
    if empty := [file.name for file in files if file not in filled]:
        notes.append(f"empty files were skipped: {', '.join(empty)}")
    options = ReadOptions(
        tokenizer=None if tokenizer is None else Path(tokenizer),
        seed=seed,
    )
    found = chosen or _recognise(filled[0])
    if tokenizer is not None and not found.holds_text:
        notes.append(f"{tokenizer} was not used: {found.name} holds no text")
    trace = found.read(filled, options)
    if not trace.num_requests:
        raise TraceError("holds no request with a prompt", file=path)
    name = Path(path).name if len(files) > 1 else trace.name
    return dataclasses.replace(trace, name=name, notes=(*trace.notes, *notes))


def _recognise(path: Path) -> Format:
    head = read_head(path)
    for known in FORMATS:
        if known.recognise(head):
            return known
    choices = ", ".join(known.name for known in FORMATS)
    raise TraceError(
        f"is of no known format (it starts with {head.first_line[:60]!r}); "
        f"name one with --format: {choices}",
        file=path,
    )


def _files(path: str | Path) -> tuple[list[Path], list[str]]:
    """Return the files that a path means, and a note about those in a folder that it does not."""
    if str(path).startswith(_SAMPLE):
        return [_sample(str(path).removeprefix(_SAMPLE))], []
    if not str(path):
        raise TraceError("no trace was named; give a file, a folder or sample:NAME")
    path = Path(path)
    if path.is_file():
        return [path], []
    if not path.is_dir():
        raise TraceError("there is no such file or folder", file=path)
    found = sorted(file for file in path.iterdir() if file.is_file())
    taken = [file for file in found if Path(file.name.removesuffix(".gz")).suffix in _SUFFIXES]
    if not taken:
        inner = sorted(folder.name for folder in path.iterdir() if folder.is_dir())
        hint = f"; name one of its folders: {', '.join(inner)}" if inner else ""
        raise TraceError(f"holds no trace file ({', '.join(sorted(_SUFFIXES))}){hint}", file=path)
    passed = [file.name for file in found if file not in taken]
    return taken, [f"no trace files, passed by: {', '.join(passed)}"] if passed else []


def _sample(name: str) -> Path:
    folder = asset_folder("samples")
    path = folder / f"{name}.parquet"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in folder.glob("*.parquet"))) or "none"
        raise TraceError(f"there is no such sample; there are: {known}", file=_SAMPLE + name)
    return path
