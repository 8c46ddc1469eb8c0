"""A configuration as text for people: every key, its unit, where it came from, what it means.

The text is TOML that reads back to an equal configuration.
"""

import inspect
import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from functools import cache
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from simkv.config.load import Resolved, config_to_mapping
from simkv.config.run import RunConfig
from simkv.config.tree import NONE, class_for, hints_of, joined, members, tables

_WIDTH = 100
_UNITS = (
    ("_per_s", "per second"),
    ("_s", "seconds"),
    ("_tokens", "tokens"),
    ("_token_threshold", "tokens"),
    ("_len", "tokens"),
    ("_blocks", "blocks"),
    ("_bytes", "bytes"),
    ("_ratio", "ratio, 0 to 1"),
)
_SECTION = re.compile(r"^Parameters\n-{3,}\n", re.MULTILINE)
_NAMES = re.compile(r"^(\w+(?:, \w+)*)\n((?:    .*\n?|\n)+)", re.MULTILINE)


def show_config(resolved: Resolved) -> str:
    """Return a configuration as commented TOML."""
    mapping = config_to_mapping(resolved.config)
    return "\n".join(_lines("", mapping, RunConfig, resolved.origin)).lstrip() + "\n"


def unit_of(name: str) -> str | None:
    """Return the unit that a key's name ends in, None where it says none."""
    if name.startswith("num_") or name in {"max_num_seqs", "max_requests"}:
        return "count"
    return next((unit for ending, unit in _UNITS if name.endswith(ending)), None)


@cache
def meanings_of(cls: type) -> Mapping[str, str]:
    """Return what the docstring of a configuration class says of its keys."""
    text = inspect.getdoc(cls) or ""
    section = _SECTION.search(text)
    found: dict[str, str] = {}
    for names, meaning in _NAMES.findall(text[section.end() :] + "\n" if section else ""):
        found |= dict.fromkeys(names.split(", "), " ".join(meaning.split()))
    return found


def _lines(
    path: str, mapping: Mapping[str, Any], hint: Any, origin: Mapping[str, str]
) -> Iterator[str]:
    """Give a table's own keys, then its tables: TOML wants them in that order."""
    cls = class_for(hint, mapping)
    inner = hints_of(cls) if cls else {}
    meanings = meanings_of(cls) if cls else {}
    if path:
        yield from ("", f"[{path}]")
        yield from _comment(_summary(cls))
    for key, value in mapping.items():
        if not isinstance(value, Mapping):
            said = origin.get(joined(path, key), "default")
            yield from _comment(meanings.get(key, ""))
            yield f"{key} = {_toml(value)}  # {_remark(key, inner[key], tables(hint), said)}"
    for key, value in mapping.items():
        if isinstance(value, Mapping):
            yield from _lines(joined(path, key), value, inner[key], origin)


def _remark(key: str, hint: Any, siblings: tuple[type, ...], origin: str) -> str:
    """Return unit or choices, and the origin."""
    choices = [word for member in members(hint) for word in _words(member)]
    if key == "kind":
        choices = [word for cls in siblings for word in _words(hints_of(cls)["kind"])]
    parts = [unit_of(key) or "", f"one of {', '.join(choices)}" if len(choices) > 1 else ""]
    if NoneType in members(hint):
        parts.append(f'or "{NONE}"')
    if origin.startswith("--set"):
        origin = "--set"
    return "; ".join([*filter(None, parts), origin if origin == "default" else f"from {origin}"])


def _words(hint: Any) -> list[str]:
    return [str(word) for word in get_args(hint)] if get_origin(hint) is Literal else []


def _summary(cls: type | None) -> str:
    return (inspect.getdoc(cls) or "").partition("\n\n")[0] if cls else ""


def _comment(text: str) -> list[str]:
    plain = re.sub(r"``(.+?)``", r"\1", " ".join(text.split()))
    plain = re.sub(r"\bNone\b", f'"{NONE}"', plain)
    return [f"# {line}" for line in textwrap.wrap(plain, _WIDTH - 2)]


def _toml(value: Any) -> str:
    """Return a value as TOML; None as text, for keys that may be None."""
    if value is None:
        return f'"{NONE}"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        # JSON's escapes are TOML's, but for the one character that JSON leaves as it is.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)
