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
from simkv.cost.choice import MeasuredTable
from simkv.cost.profile import Profile, find_profile, profile_of_device
from simkv.digest import digest_of, digest_of_file
from simkv.obs.schema import SCHEMA_VERSION

RESULTS_EPOCH = 2

_SAMPLE = "sample:"


class Identities:
    """Names cells; reads each file that configurations name once."""

    def __init__(self) -> None:
        self._digests: dict[Path, str] = {}
        self._profiles: dict[tuple[str | None, str], Profile] = {}

    def of(self, config: RunConfig) -> str:
        """Return the digest that names a configuration's result.

        Raises
        ------
        ProfileError
            There is no profile for the configuration.
        """
        named: dict[str, Any] = {}
        for path, value in leaves(config_to_mapping(config)).items():
            files = list(files_of(str(value))) if _names_files(path) else []
            # The bytes count, not where they lie: a sweep resumes from another folder too.
            named[path] = [self._digest(file) for file in files] if files else value
        profile = self._profile(config)
        if profile is not None:
            shipped = asset_folder("profiles") / f"{profile.name}.json"
            if shipped.is_file():
                named["profile"] = self._digest(shipped)
        return digest_of({"config": named, "schema": SCHEMA_VERSION, "epoch": RESULTS_EPOCH})

    def knows_block_tokens(self, config: RunConfig) -> bool:
        """Say whether the step times of a configuration depend on the block size.

        Raises
        ------
        ProfileError
            There is no profile for the configuration.
        """
        profile = self._profile(config)
        return profile is not None and profile.block_size_varies

    def _profile(self, config: RunConfig) -> Profile | None:
        if not isinstance(config.cost, MeasuredTable):
            return None
        key = config.cost.profile, config.device.name
        if key not in self._profiles:
            name, device = key
            self._profiles[key] = profile_of_device(device) if name is None else find_profile(name)
        return self._profiles[key]

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
        yield from sorted(asset_folder("samples").glob(f"{value.removeprefix(_SAMPLE)}.*"))
    elif Path(value).is_dir():
        yield from sorted(file for file in Path(value).rglob("*") if file.is_file())
    elif Path(value).is_file():
        yield Path(value)
