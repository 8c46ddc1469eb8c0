"""Configurations from outside: TOML files, ``--set a.b=c``, mappings, resolved JSON.

All of them end in ``tree.py``; the strict check is imported where it is needed only, so that
``config_to_mapping`` and ``read_json_config`` work where pydantic is not installed.

In a file, a path of a trace, tokenizer, profile or model is taken relative to the file's folder if
it exists there, and relative to the current directory otherwise.
"""

import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from simkv.config.run import RunConfig
from simkv.config.tree import build, joined, leaves, overlaid, to_mapping
from simkv.errors import ConfigError, InputError

DEFAULT_FILE = Path(__file__).with_name("default.toml")
"""The configuration of ``simkv run`` without a file."""

_FILE_KEYS = {"path", "tokenizer", "cost.profile", "model.name"}

_WORD = r"""(?:[\w-]+|"[^"]*"|'[^']*')"""
_DOTTED = rf"{_WORD}(?:\s*\.\s*{_WORD})*"
_HEADER = re.compile(rf"\s*\[\[?\s*({_DOTTED})\s*\]")
_ASSIGNMENT = re.compile(rf"\s*({_DOTTED})\s*=")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A partial mapping and where it came from.

    Parameters
    ----------
    mapping
        What it says.
    place
        Gives the place of a dotted path in words: file and line, or the ``--set`` itself.
    """

    mapping: Mapping[str, Any]
    place: Callable[[str], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A configuration and, for each key that is not a default, the place that it came from."""

    config: RunConfig
    origin: Mapping[str, str]


def load_config(
    path: Path | None = None,
    *,
    sets: Sequence[str] = (),
    mapping: Mapping[str, Any] | None = None,
) -> RunConfig:
    """Return the configuration of a TOML file with changes laid over it.

    Parameters
    ----------
    path
        The file: TOML, or JSON as picks and results hold it; None takes the packaged default.
    sets
        Changes as on the command line: ``kv.block_tokens=32``, the last one counts.
    mapping
        Changes as a nested mapping, laid over the file and under ``sets``.

    Raises
    ------
    ConfigError
        One sentence: file and line, dotted path, what was expected, what was found.
    """
    return resolve(path, sets=sets, mapping=mapping).config


def resolve(
    path: Path | None = None,
    *,
    sets: Sequence[str] = (),
    mapping: Mapping[str, Any] | None = None,
) -> Resolved:
    """Return what ``load_config`` returns, and where each key came from."""
    layers = [_file_layer(path or DEFAULT_FILE)]
    if mapping is not None:
        layers.append(Layer(mapping=mapping, place=lambda _: "mapping"))
    layers.append(_set_layer(sets))
    complete: Any = to_mapping(RunConfig())
    origin: dict[str, str] = {}
    for layer in layers:
        before = leaves(complete)
        complete = overlaid(complete, layer.mapping, RunConfig)
        said = leaves(layer.mapping)
        for table in (key.removesuffix("kind") for key in said if key.endswith(".kind")):
            if before.get(f"{table}kind") != said[f"{table}kind"]:
                origin = {key: of for key, of in origin.items() if not key.startswith(table)}
        origin |= {key: layer.place(key) for key in said}
    try:
        return Resolved(config=config_from_mapping(complete), origin=origin)
    except ConfigError as error:
        raise _placed(error, layers) from None


def config_from_mapping(mapping: Mapping[str, Any]) -> RunConfig:
    """Return the configuration that a mapping describes; keys that it lacks get their defaults.

    Raises
    ------
    ConfigError
        With the dotted path of the first mistake.
    """
    from simkv.config.check import check  # needs pydantic

    complete = overlaid(to_mapping(RunConfig()), mapping, RunConfig)
    check(RunConfig, complete)
    return _run_config(complete)


def config_to_mapping(config: RunConfig) -> dict[str, Any]:
    """Return every key of a configuration as a JSON-like mapping; it reads back to an equal one."""
    mapping: dict[str, Any] = to_mapping(config)
    return mapping


def apply_sets(mapping: Mapping[str, Any], sets: Sequence[str]) -> dict[str, Any]:
    """Return a complete mapping with changes such as ``kv.block_tokens=32`` laid over it.

    Values are TOML; a bare word is text, and ``none`` stands for no value. All changes are made at
    once, so their order does not matter; a change of ``kind`` drops the keys of the old one.
    """
    complete = overlaid(to_mapping(RunConfig()), mapping, RunConfig)
    changed: dict[str, Any] = overlaid(complete, _set_layer(sets).mapping, RunConfig)
    return changed


def read_json_config(path: Path) -> RunConfig:
    """Read a complete configuration with the standard library only.

    That is a pick, or the ``config.json`` of a result.

    Raises
    ------
    ConfigError
        The file is not there, is not JSON, or lacks or has a key that this simkv does not know.
    """
    mapping = _parsed_json(path, _text(path))
    try:
        return _run_config(mapping)
    except ConfigError as error:
        raise ConfigError(
            f"{path}: {error}; expected a complete configuration of this version of simkv"
        ) from None
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{path}: a value has the wrong type ({error})") from None


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises
    ------
    ConfigError
        The file cannot be read, or is not TOML; with the line.
    """
    return _parsed(path, _text(path))


def parse_set(text: str) -> tuple[str, Any]:
    """Return the dotted path and the value of one ``--set``."""
    key, sign, value = (part.strip() for part in text.partition("="))
    if not (sign and re.fullmatch(r"[\w-]+(\.[\w-]+)*", key)):
        raise ConfigError(f"--set {text}: expected KEY=VALUE such as kv.block_tokens=32")
    return key, _parse_value(value, text)


def _parse_value(value: str, text: str) -> Any:
    try:
        parsed = tomllib.loads(f"value = {value}")
    except tomllib.TOMLDecodeError:
        if value[:1] in {'"', "'", "[", "{"}:
            raise ConfigError(
                f"--set {text}: not a TOML value; close its quotes and brackets, and mind the shell"
            ) from None
        return value
    found = parsed["value"]
    is_plain = isinstance(found, bool | int | float | str | list | dict) and len(parsed) == 1
    return found if is_plain else value


def _run_config(complete: Mapping[str, Any]) -> RunConfig:
    config: RunConfig = build(RunConfig, complete)
    return config


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; check the path") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not a text file in UTF-8; is this a configuration?") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None


def _parsed(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        reason, _, place = str(error).partition(" (at ")
        found = re.search(r"line (\d+)", place)
        line = int(found[1]) if found else text.count("\n") + 1
        raise ConfigError(f"{path}:{line}: not TOML: {reason[0].lower()}{reason[1:]}") from None


def _parsed_json(path: Path, text: str) -> dict[str, Any]:
    try:
        mapping = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}:{error.lineno}: not JSON: {error.msg}") from None
    if not isinstance(mapping, dict):
        raise ConfigError(f"{path}: expected a JSON object with a configuration")
    return mapping


def _file_layer(path: Path) -> Layer:
    text = _text(path)
    parsed = _parsed_json(path, text) if path.suffix == ".json" else _parsed(path, text)
    mapping = anchored(parsed, path.parent)
    source = "default" if path == DEFAULT_FILE else str(path)

    def place(key: str) -> str:
        line = line_of(text, key)
        return source if line is None or source == "default" else f"{source}:{line}"

    return Layer(mapping=mapping, place=place)


def anchored(mapping: Mapping[str, Any], folder: Path, table: str = "") -> dict[str, Any]:
    """Return a mapping whose paths that exist below ``folder`` are spelt from there."""
    found: dict[str, Any] = {}
    for name, value in mapping.items():
        key = joined(table, name)
        found[name] = value
        if isinstance(value, Mapping):
            found[name] = anchored(value, folder, key)
        elif value and isinstance(value, str) and {name, key} & _FILE_KEYS:
            beside = folder / value
            # Only a trace may be a folder; one that happens to be called like a model is none.
            if beside.exists() if name == "path" else beside.is_file():
                found[name] = str(beside)
    return found


def _set_layer(sets: Sequence[str]) -> Layer:
    nested: dict[str, Any] = {}
    texts: dict[str, str] = {}
    for text in sets:
        key, value = parse_set(text)
        texts[key] = text
        *tables, last = key.split(".")
        node = nested
        for table in tables:
            if not isinstance(node.get(table), dict):
                node[table] = {}
            node = node[table]
        node[last] = value

    def place(key: str) -> str:
        return f"--set {texts[max(texts, key=lambda said: _num_shared(said, key))]}"

    return Layer(mapping=nested, place=place)


def _num_shared(one: str, other: str) -> int:
    """Return how many leading words two dotted paths share."""
    pairs = zip(one.split("."), other.split("."), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def line_of(text: str, path: str) -> int | None:
    """Return the line of a TOML text that sets a dotted path, or the nearest table around it."""
    wanted = path.split(".")
    found: int | None = None
    depth, table = 0, list[str]()
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            here = table = _words(header[1])
        elif assignment := _ASSIGNMENT.match(line):
            here = [*table, *_words(assignment[1])]
        else:
            continue
        if len(here) > depth and wanted[: len(here)] == here:
            found, depth = number, len(here)
    return found


def _words(dotted: str) -> list[str]:
    return [word.strip("\"'") for word in re.findall(_WORD, dotted)]


def _placed(error: ConfigError, layers: Sequence[Layer]) -> InputError:
    """Return the error with the place of the layer that says most about its path."""
    parts = error.path.split(".")
    best: Layer | None = None
    deepest = 0
    for layer in layers:
        depth, node = 0, layer.mapping
        while depth < len(parts) and isinstance(node, Mapping) and parts[depth] in node:
            node, depth = node[parts[depth]], depth + 1
        if depth and depth >= deepest:
            best, deepest = layer, depth
    if best is None:
        return error
    placed = ConfigError(f"{best.place(error.path)}: {error}")
    placed.path = error.path
    return placed
