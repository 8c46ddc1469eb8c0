"""``simkv models`` and ``simkv profiles``: what a configuration can name."""

import dataclasses
from typing import TYPE_CHECKING, Any

from simkv.cli.output import Json, examples, print_json, print_table
from simkv.units import GIB, KIB, TB, TFLOP

if TYPE_CHECKING:
    from simkv.cost.profile import Profile

MODELS_EXAMPLES = examples("simkv models", "simkv models --json")
PROFILES_EXAMPLES = examples("simkv profiles", "simkv profiles --json")

_BILLION = 10**9


def models(*, as_json: Json = False) -> None:
    """List the models and devices that a configuration can name.

    model.name may also be the path of a Hugging Face config.json.

    Parameters
    ----------
    as_json
        Print every figure as JSON.
    """
    from simkv.cost import catalog

    known, devices = catalog.models(), catalog.devices()
    if as_json:
        print_json(
            {
                "models": [dataclasses.asdict(model) for model in known],
                "devices": [dataclasses.asdict(device) for device in devices],
            }
        )
        return
    print_table(
        ("model.name", "parameters", "layers", "heads", "KV heads", "KV a token (bf16)", "longest"),
        [
            (
                model.name,
                f"{model.total_parameters / _BILLION:.1f} B",
                str(model.num_layers),
                str(model.num_query_heads),
                "latent" if model.latent else str(model.num_kv_heads),
                f"{model.kv_bytes_per_token('bf16') / KIB:,.0f} KiB",
                f"{model.max_position_tokens:,}",
            )
            for model in known
        ],
    )
    print()
    print_table(
        ("device.name", "memory", "bandwidth", "bf16 peak", "fp8 peak"),
        [
            (
                device.name,
                f"{device.memory_bytes / GIB:.1f} GiB",
                f"{device.read_bytes_per_s / TB:.2f} TB/s",
                f"{device.bf16_flop_per_s / TFLOP:,.0f} TFLOP/s",
                f"{device.fp8_flop_per_s / TFLOP:,.0f} TFLOP/s",
            )
            for device in devices
        ],
    )


def profiles(*, as_json: Json = False) -> None:
    """List the step-time profiles that a configuration can name, and what they were made from.

    Parameters
    ----------
    as_json
        Print provenance and errors too, as JSON.
    """
    from simkv.cost import profile

    known = profile.profiles()
    if as_json:
        print_json({"profiles": [_about(one) for one in known]})
        return
    print_table(
        ("cost.profile", "device", "model", "block size", "measured with"),
        [
            (
                one.name,
                one.device,
                one.model or "any",
                "varied" if one.block_size_varies else f"{one.block_tokens_measured} only",
                one.engine,
            )
            for one in known
        ],
        num_text_columns=5,
    )


def _about(profile: "Profile") -> dict[str, Any]:
    """Return what a profile says of itself, without its coefficients."""
    names = ("name", "device", "model", "engine", "measured", "block_tokens_measured",
             "block_size_varies", "host_overhead_s", "host_source", "heldout", "notes")  # fmt: skip
    about = {name: getattr(profile, name) for name in names}
    return {**about, "sources": [dataclasses.asdict(source) for source in profile.sources]}
