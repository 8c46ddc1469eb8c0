"""The strict judge of complete mappings, and what it says about the first thing that is wrong.

The only place that knows pydantic: it mirrors each configuration class as a model that forbids
other keys, converts nothing and tells unions apart by ``kind``. It builds nothing; ranges are the
classes' own business.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from types import NoneType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic_core import ErrorDetails

from simkv.config.tree import (
    NONE,
    class_for,
    hints_of,
    joined,
    kind_of,
    members,
    tables,
)
from simkv.errors import ConfigError

_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def check(cls: type, mapping: Mapping[str, Any]) -> None:
    """Check the keys, types and kinds of a complete mapping of a configuration class.

    Raises
    ------
    ConfigError
        With the dotted path of the first mistake, what was expected there and what was found.
    """
    try:
        _model(cls).model_validate(mapping)
    except ValidationError as error:
        raise _explained(cls, mapping, error.errors(include_url=False)) from None


@cache
def _model(cls: type) -> type[BaseModel]:
    keys: dict[str, Any] = {name: (_mirrored(hint), ...) for name, hint in hints_of(cls).items()}
    strict = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, protected_namespaces=())
    return create_model(cls.__name__, __config__=strict, **keys)


def _mirrored(hint: Any) -> Any:
    """Return what pydantic checks for a hint: models in place of classes."""
    choices = tables(hint)
    if len(choices) > 1:
        union: Any = Union[tuple(_model(cls) for cls in choices)]  # noqa: UP007
        tagged = Annotated[union, Field(discriminator="kind")]
        return tagged | None if NoneType in members(hint) else tagged
    if choices:
        return _model(choices[0]) | None if NoneType in members(hint) else _model(choices[0])
    return hint


def _explained(
    cls: type, mapping: Mapping[str, Any], errors: Sequence[ErrorDetails]
) -> ConfigError:
    """Return the sentence about the most telling mistake: a wrong key or kind before the rest."""
    order = {"extra_forbidden": 0, "union_tag_invalid": 1, "union_tag_not_found": 1, "missing": 3}
    error = min(errors, key=lambda found: order.get(found["type"], 2))
    path, hint, value = _place(cls, mapping, error["loc"])
    if error["type"] == "extra_forbidden":
        return _unknown_key(cls, mapping, error["loc"], path)
    if error["type"] == "missing":
        return ConfigError(f"missing, expected {expected(hint)}", path=path)
    if error["type"].startswith("union_tag"):
        return _wrong_kind(hint, value, joined(path, "kind"))
    if get_origin(hint) is Literal and isinstance(value, str):
        return _wrong_choice(get_args(hint), value, path)
    kinds = [kind_of(choice) for choice in tables(hint)]
    advice = ""
    if _is_quoted_number(hint, value):
        advice = "; write it without quotes"
    elif len(kinds) > 1:
        advice = f"; set {path}.kind to {_listed(kinds)}"
    return ConfigError(f"expected {expected(hint)}, got {got(value)}{advice}", path=path)


def _place(cls: type, mapping: Any, loc: Sequence[int | str]) -> tuple[str, Any, Any]:
    """Walk to where an error lies; pydantic names the kind of a union on the way."""
    path = ""
    hint: Any = cls
    value: Any = mapping
    for part in loc:
        if isinstance(value, Mapping):
            if len(tables(hint)) > 1 and part == value.get("kind") and part != "kind":
                continue
            inner_hints = hints_of(class_for(hint, value) or tables(hint)[0])
            path, hint, value = joined(path, str(part)), inner_hints.get(str(part)), value.get(part)
    return path, hint, value


def _unknown_key(
    cls: type, mapping: Mapping[str, Any], loc: Sequence[int | str], path: str
) -> ConfigError:
    table, hint, value = _place(cls, mapping, loc[:-1])
    chosen, key = class_for(hint, value), str(loc[-1])
    valid = list(hints_of(chosen)) if chosen else []
    kind = kind_of(chosen) if chosen else None
    owners = [kind_of(other) for other in tables(hint) if key in hints_of(other)]
    of = f"{table} of kind {got(kind)}" if kind else table or "the top level"
    if owners:
        return ConfigError(
            f"{of} has no such key, only kind {_listed(owners)} has; "
            f"set {table}.kind or remove it (valid keys: {', '.join(valid)})",
            path=path,
        )
    return ConfigError(
        f"unknown key{_did_you_mean(key, valid)}; valid keys of {of}: {', '.join(valid)}", path=path
    )


def _wrong_kind(hint: Any, value: Mapping[str, Any], path: str) -> ConfigError:
    kinds = [kind_of(cls) for cls in tables(hint)]
    if "kind" not in value:
        return ConfigError(f"missing, expected {_listed(kinds)}", path=path)
    return _wrong_choice(kinds, value["kind"], path)


def _wrong_choice(choices: Sequence[Any], value: Any, path: str) -> ConfigError:
    hint = _did_you_mean(str(value), [str(choice) for choice in choices])
    return ConfigError(f"expected {_listed(choices)}, got {got(value)}{hint}", path=path)


def _did_you_mean(word: str, choices: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(choices), n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def _is_quoted_number(hint: Any, value: Any) -> bool:
    if not isinstance(value, str) or not {int, float} & set(members(hint)):
        return False
    try:
        float(value)
    except ValueError:
        return False
    return True


def _listed(choices: Sequence[Any]) -> str:
    words = [got(choice) for choice in choices]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def expected(hint: Any) -> str:
    """Return in words what a key of this hint takes."""
    words: list[str] = []
    for member in members(hint):
        if get_origin(member) is Literal:
            words += [got(choice) for choice in get_args(member)]
        elif member is NoneType:
            words.append(got(NONE))
        else:
            words.append(_WORDS.get(member, "a table"))
    words = list(dict.fromkeys(words))
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def got(value: Any) -> str:
    """Return a value as a person would write it."""
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return NONE if value is None else str(value)
