"""A profile: what was measured on one device, as fitted coefficients and residuals, in one file.

A profile carries its provenance (files with their digests, licence, engine, device) and the
errors of its fits on points that were left out. None of the published tables varies the block
size: ``block_tokens_measured`` says at which it was measured, and step times do not depend on it.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from simkv.assets import asset_folder
from simkv.cost.catalog import did_you_mean
from simkv.cost.geometry import Dtype
from simkv.cost.surface import Surface
from simkv.errors import ProfileError

FORMAT = 1

Curve: TypeAlias = tuple[list[float], list[float]]
"""Ascending quantities, and microseconds (or a named operator's) at each."""


@dataclass(frozen=True, slots=True)
class Fit:
    """One fitted kernel: the formula's coefficients and the residuals that it leaves.

    ``shape`` is (query heads, KV heads, head dimension) of an attention kernel on one rank, and
    empty for a matrix product, whose shape is part of its surface.
    """

    coefficients: dict[str, float]
    surface: Surface
    shape: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One file that a profile was made from."""

    file: str
    sha256: str
    project: str
    licence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Everything that is known of one device under one engine.

    Parameters
    ----------
    device
        Name in the device list.
    model
        The only model that it serves, where layers were measured as a whole; None for any.
    block_tokens_measured, block_size_varies
        Block size of the measurements, and whether other sizes were measured too.
    fused_mixed
        Whether prefill and decode attention run in one call whose joint time was measured;
        otherwise their times are added.
    ragged_ratio
        Share of the distance from the mean to the longest context that a ragged batch costs.
    host_overhead_s
        Host time that every step adds.
    host_floor_s, host_floor_sequence_s
        Host time of a step that the device's time hides (asynchronous scheduling): a step takes
        no less than ``host_floor_s + host_floor_sequence_s x sequences``.
    decode, prefill
        Attention kernels by head shape; decode by number format of the KV cache.
    mixed
        One call over a chunk and decodes, where ``fused_mixed``.
    gemm
        Matrix products by number format of the weights.
    layer_us, once_us
        Operators of a layer, and of a step, as curves over tokens; empty where they follow from
        ``gemm`` and ``pointwise``.
    sampled_us
        LM head and sampler as curves over sampled sequences.
    pointwise
        ``kernel_us`` and ``read_gb_per_s`` of norms, activations and the sampler, where those
        are not measured.
    all_reduce_us
        Time over bytes of a tensor-parallel all-reduce, by number of devices.
    heldout
        Relative errors of the fits on points left out: ``{kernel: {split: [median, p90]}}``.
    """

    name: str
    device: str
    engine: str
    measured: str
    model: str | None
    sources: list[Source]
    notes: list[str]
    block_tokens_measured: int
    block_size_varies: bool
    fused_mixed: bool
    ragged_ratio: float
    host_overhead_s: float
    host_floor_s: float
    host_floor_sequence_s: float
    host_source: str
    decode: dict[Dtype, list[Fit]]
    prefill: list[Fit]
    mixed: Fit | None
    gemm: dict[Dtype, Fit]
    layer_us: dict[str, Curve]
    once_us: dict[str, Curve]
    sampled_us: dict[str, Curve]
    pointwise: dict[str, float]
    all_reduce_us: dict[int, Curve]
    heldout: dict[str, dict[str, list[float]]]


def profiles() -> list[Profile]:
    """Return the shipped profiles, by name."""
    return [load(path) for path in _shipped()]


def find_profile(name_or_path: str) -> Profile:
    """Return a shipped profile by its name, the one of a device by the device's, or a file.

    Raises
    ------
    ProfileError
        If there is none, with the nearest names.
    """
    if name_or_path.endswith(".json"):
        return load(Path(name_or_path))
    by_name = {path.stem: path for path in _shipped()}
    if name_or_path in by_name:
        return load(by_name[name_or_path])
    wanted = name_or_path.casefold()
    of_device = [profile for profile in profiles() if profile.device == wanted]
    if len(of_device) == 1:
        return of_device[0]
    raise ProfileError(f"no profile {name_or_path!r}; {did_you_mean(wanted, by_name)}")


def profile_of_device(device: str) -> Profile:
    """Return the profile that was measured on a device; ProfileError where there is none."""
    found = [profile for profile in profiles() if profile.device == device]
    if found:
        return found[0]
    measured = sorted({profile.device for profile in profiles()})
    raise ProfileError(
        f"nothing was measured on {device} (profiles exist for {', '.join(measured)}); "
        "set cost.kind=roofline for a bound from its peaks, or name a profile file"
    )


def load(path: Path) -> Profile:
    """Return the profile in a file; ProfileError in one sentence if it cannot be used."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read ({error.strerror or error})") from error
    except ValueError as error:
        raise ProfileError(f"{path}: is not JSON ({error})") from error
    found = data.get("format") if isinstance(data, dict) else None
    if found != FORMAT:
        raise ProfileError(f"{path}: not a profile of format {FORMAT} (format is {found!r})")
    try:
        return _parse(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"key {error} is missing" if isinstance(error, KeyError) else str(error)
        raise ProfileError(f"{path}: is damaged, {reason}; make it again") from error


def save(profile: Profile, path: Path) -> None:
    """Write a profile; the same profile gives the same bytes."""
    path.write_text(_text(_plain(profile)) + "\n", encoding="utf-8")


def _shipped() -> list[Path]:
    return sorted(asset_folder("profiles").glob("*.json"))


def _plain(profile: Profile) -> dict[str, Any]:
    fields = {name: getattr(profile, name) for name in Profile.__slots__}
    return {
        "format": FORMAT,
        **fields,
        "sources": [
            {name: getattr(source, name) for name in Source.__slots__} for source in profile.sources
        ],
        "decode": {d: [_fit_plain(fit) for fit in fits] for d, fits in profile.decode.items()},
        "prefill": [_fit_plain(fit) for fit in profile.prefill],
        "mixed": None if profile.mixed is None else _fit_plain(profile.mixed),
        "gemm": {dtype: _fit_plain(fit) for dtype, fit in profile.gemm.items()},
        "all_reduce_us": {str(ranks): curve for ranks, curve in profile.all_reduce_us.items()},
    }


def _fit_plain(fit: Fit) -> dict[str, Any]:
    plain = {"shape": list(fit.shape), "coefficients": fit.coefficients}
    return plain | fit.surface.to_json()


def _fit_parse(plain: dict[str, Any]) -> Fit:
    surface = Surface.from_json(plain["axes"], plain["residual_permille"])
    return Fit(plain["coefficients"], surface, tuple(plain["shape"]))


def _parse(data: dict[str, Any]) -> Profile:
    fields = {name: data[name] for name in Profile.__slots__}
    fields["sources"] = [Source(**source) for source in data["sources"]]
    fields["decode"] = {d: [_fit_parse(f) for f in fits] for d, fits in data["decode"].items()}
    fields["prefill"] = [_fit_parse(fit) for fit in data["prefill"]]
    fields["mixed"] = None if data["mixed"] is None else _fit_parse(data["mixed"])
    fields["gemm"] = {dtype: _fit_parse(fit) for dtype, fit in data["gemm"].items()}
    for name in ("layer_us", "once_us", "sampled_us"):
        fields[name] = {op: (x, us) for op, (x, us) in data[name].items()}
    fields["all_reduce_us"] = {int(n): (x, us) for n, (x, us) in data["all_reduce_us"].items()}
    return Profile(**fields)


def _text(value: Any, depth: int = 0) -> str:
    """Return JSON with one line a leaf: lists of numbers stay on a line, trees are indented."""
    inner, outer = "  " * (depth + 1), "  " * depth
    if isinstance(value, dict) and value:
        rows = [f"{inner}{json.dumps(key)}: {_text(v, depth + 1)}" for key, v in value.items()]
        return "{\n" + ",\n".join(rows) + f"\n{outer}}}"
    if isinstance(value, list | tuple) and _holds_trees(value):
        rows = [inner + _text(item, depth + 1) for item in value]
        return "[\n" + ",\n".join(rows) + f"\n{outer}]"
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _holds_trees(items: Iterable[Any]) -> bool:
    return any(isinstance(item, dict | str) for item in items)
