"""What the result of a cell depends on, as one digest: the name that it is stored under.

That is the resolved configuration, the bytes of the files that it names, the shape of the tables
(``SCHEMA_VERSION``) and the behaviour of the code (``RESULTS_EPOCH``, raised whenever a change
moves results on purpose). How many workers ran, when and where is no part of it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from simkv.assets import asset_folder
from simkv.config.load import config_to_mapping
from simkv.config.run import RunConfig
from simkv.config.tree import leaves
from simkv.digest import digest_of, digest_of_file
from simkv.obs.schema import SCHEMA_VERSION

RESULTS_EPOCH = 1

_SAMPLE = "sample:"


class Identities:
    """Names cells; reads each file that configurations name once."""

    def __init__(self) -> None:
        self._digests: dict[Path, str] = {}

    def of(self, config: RunConfig) -> str:
        """Return the digest that names a configuration's result."""
        named: dict[str, Any] = {}
        for path, value in leaves(config_to_mapping(config)).items():
            files = list(files_of(str(value))) if _names_files(path) else []
            # The bytes count, not where they lie: a sweep resumes from another folder too.
            named[path] = [self._digest(file) for file in files] if files else value
        return digest_of({"config": named, "schema": SCHEMA_VERSION, "epoch": RESULTS_EPOCH})

    def _digest(self, file: Path) -> str:
        if file not in self._digests:
            self._digests[file] = digest_of_file(file)
        return self._digests[file]


def _names_files(path: str) -> bool:
    key = path.rpartition(".")[2]
    return key in {"path", "tokenizer"} or path in {"cost.profile", "model.name"}


def files_of(value: str) -> Iterator[Path]:
    """Walk the files that a value names, in order: a file, a folder's, or a shipped sample's."""
    if value.startswith(_SAMPLE):
        name = value.removeprefix(_SAMPLE)
        yield from sorted(file for file in asset_folder("samples").glob(f"{name}.*"))
    elif Path(value).is_dir():
        yield from sorted(file for file in Path(value).rglob("*") if file.is_file())
    elif Path(value).is_file():
        yield Path(value)
