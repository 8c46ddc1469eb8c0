"""ServeGen client models read as if they were a trace: generated, which the notes say."""

from collections.abc import Sequence
from pathlib import Path

from simkv.workload.clients import CLIENT_FILE
from simkv.workload.readers.format import Format, Head, ReadOptions
from simkv.workload.servegen import generate_files
from simkv.workload.trace import Trace


def _recognise(head: Head) -> bool:
    return CLIENT_FILE.fullmatch(head.name) is not None


def _read(paths: Sequence[Path], options: ReadOptions) -> Trace:
    return generate_files(paths, seed=options.seed)


SERVEGEN_CLIENTS = Format(
    name="servegen",
    about="ServeGen clients (chunk-N-trace.csv and chunk-N-dataset.json; a generator)",
    recognise=_recognise,
    read=_read,
)
