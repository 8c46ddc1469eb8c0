"""Hypothesis strategies made from the configuration classes themselves."""

from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from simkv.config.run import RunConfig
from simkv.errors import ConfigError

LEAVES: dict[Any, st.SearchStrategy[Any]] = {
    NoneType: st.none(),
    bool: st.booleans(),
    int: st.integers(1, 10_000),
    float: st.floats(0.001, 1.0) | st.sampled_from([1.0, 2.0, 1e-9, 1e16]),
    # "none" stands for None where a key may be None, so it is no text there; a name of a file that
    # exists beside the configuration changes when it is read.
    str: st.text(max_size=20).filter(lambda text: text != "none" and not set(text) & set("./")),
}


def of_hint(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a type hint, as far as configurations use them."""
    if hint in LEAVES:
        return LEAVES[hint]
    if is_dataclass(hint):
        return of_class(hint)
    if get_origin(hint) in (Union, UnionType):
        return st.one_of(*map(of_hint, get_args(hint)))
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    raise NotImplementedError(hint)


def of_class(cls: Any) -> st.SearchStrategy[Any]:
    """Instances within their ranges: each field keeps its default or takes any value."""
    hints = get_type_hints(cls)

    def one(field: Any) -> st.SearchStrategy[Any]:
        if field.default is not MISSING:
            return st.just(field.default) | of_hint(hints[field.name])
        if field.default_factory is not MISSING:
            return st.builds(field.default_factory) | of_hint(hints[field.name])
        return of_hint(hints[field.name])

    def built(values: dict[str, Any]) -> Any:
        try:
            return cls(**values)
        except ConfigError:
            return None

    keys = st.fixed_dictionaries({field.name: one(field) for field in fields(cls)})
    return keys.map(built).filter(lambda value: value is not None)


run_configs = of_class(RunConfig)
