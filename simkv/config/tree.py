"""The configuration tree as plain mappings, and back.

A *mapping* is what TOML and JSON can say: tables, text, numbers, true and false, and None.
It is *complete* when every key of every chosen class is there. This module lays one mapping over
another, fills in defaults, and builds the frozen values; it knows the classes by their type hints
only. It judges nothing (``check.py`` does) and reads no file (``load.py`` does).
"""

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from simkv.errors import ConfigError

NONE = "none"
"""How None is written where TOML has no word for it: as text, for keys that may be None."""


@cache
def hints_of(cls: Any) -> dict[str, Any]:
    """Return the type hint of each key of a configuration class, in order."""
    hints = get_type_hints(cls)
    return {field.name: hints[field.name] for field in fields(cls)}


def members(hint: Any) -> tuple[Any, ...]:
    """Return the alternatives of a hint; a hint that is no union is its only one."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def tables(hint: Any) -> tuple[type, ...]:
    """Return the configuration classes among the alternatives of a hint."""
    return tuple(
        member for member in members(hint) if isinstance(member, type) and is_dataclass(member)
    )


def kind_of(cls: type) -> str | None:
    """Return the word that chooses a class within its union, None for a class without one."""
    hint = hints_of(cls).get("kind")
    return None if hint is None else str(get_args(hint)[0])


def class_for(hint: Any, mapping: Mapping[str, Any]) -> type | None:
    """Return the class that a table of this hint stands for, None where its kind names none."""
    choices = tables(hint)
    if len(choices) == 1 and kind_of(choices[0]) is None:
        return choices[0]
    return next((cls for cls in choices if kind_of(cls) == mapping.get("kind")), None)


def to_mapping(value: Any) -> Any:
    """Return a configuration value as a complete, JSON-like mapping."""
    if is_dataclass(value):
        return {field.name: to_mapping(getattr(value, field.name)) for field in fields(value)}
    return value


@cache
def _defaults(cls: Any) -> tuple[tuple[str, Any], ...]:
    found: list[tuple[str, Any]] = []
    for field in fields(cls):
        if field.default is not MISSING:
            found.append((field.name, field.default))
        elif field.default_factory is not MISSING:
            found.append((field.name, field.default_factory()))
    return tuple(found)


def defaults_of(cls: type) -> dict[str, Any]:
    """Return the mapping of a class's defaults, complete but for keys that have none."""
    return {name: to_mapping(value) for name, value in _defaults(cls)}


def overlaid(base: Any, change: Any, hint: Any) -> Any:
    """Return a complete mapping with a partial one laid over it.

    A change of ``kind`` starts from the defaults of the new class: nothing of the old one leaks.
    Keys and values that do not fit are kept as they are, for ``check.py`` to complain about.
    """
    if change == NONE and NoneType in members(hint):
        return None
    if not (isinstance(change, Mapping) and tables(hint)):
        return change
    start = base if isinstance(base, Mapping) else {}
    if not start or change.get("kind", start.get("kind")) != start.get("kind"):
        chosen = class_for(hint, change)
        start = defaults_of(chosen) if chosen else {}
    cls = class_for(hint, {**start, **change})
    inner_hints = hints_of(cls) if cls else {}
    return {
        **start,
        **{
            key: overlaid(start.get(key), value, inner_hints.get(key, Any))
            for key, value in change.items()
        },
    }


def build(hint: Any, value: Any, path: str = "") -> Any:
    """Return the frozen value that a complete, checked mapping describes.

    Raises
    ------
    ConfigError
        A value is out of its range, or a table lacks a key or has an unknown one.
    """
    if isinstance(value, Mapping):
        cls = class_for(hint, value)
        if cls is None:
            raise ConfigError(f"no kind {value.get('kind')!r}", path=path)
        return _build_table(cls, value, path)
    if isinstance(value, int) and not isinstance(value, bool):
        choices = members(hint)
        return float(value) if float in choices and int not in choices else value
    return value


def _build_table(cls: type, mapping: Mapping[str, Any], path: str) -> Any:
    inner = hints_of(cls)
    for key in [*mapping, *inner]:
        if key not in inner or key not in mapping:
            state = "unknown" if key not in inner else "missing"
            raise ConfigError(f"{state} key", path=joined(path, key))
    values = {key: build(inner[key], value, joined(path, key)) for key, value in mapping.items()}
    try:
        return cls(**values)
    except ConfigError as error:
        if not path or error.path == path or error.path.startswith(f"{path}."):
            raise
        # A class that is used in several places names the place it is mostly used in.
        message = str(error).removeprefix(f"{error.path}: ")
        key = error.path.rpartition(".")[2]
        raise ConfigError(message, path=joined(path, key) if key in inner else path) from error


def joined(path: str, key: str) -> str:
    """Return the dotted path of a key within the table at ``path``."""
    return f"{path}.{key}" if path else key


def leaves(mapping: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Return each value that is no table under its dotted path."""
    found: dict[str, Any] = {}
    for key, value in mapping.items():
        if isinstance(value, Mapping):
            found |= leaves(value, joined(path, key))
        else:
            found[joined(path, key)] = value
    return found
