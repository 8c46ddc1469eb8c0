"""Finding models and devices: the shipped lists, and Hugging Face ``config.json`` files."""

import difflib
import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from simkv.cost.geometry import Device, Experts, Latent, Model
from simkv.errors import ProfileError

_FOLDER = Path(__file__).parent

# Endings that do not change the shapes of a model.
_ENDINGS = ("-instruct", "-hf", "-base")


def models() -> list[Model]:
    """Return every model of the shipped list, in its order."""
    found = []
    for name, table in _read_toml("models.toml").items():
        parts = dict(table)
        latent = Latent(**parts.pop("latent")) if "latent" in parts else None
        experts = Experts(**parts.pop("experts")) if "experts" in parts else None
        found.append(Model(name=name, latent=latent, experts=experts, **parts))
    return found


def devices() -> list[Device]:
    """Return every device of the shipped list, in its order."""
    return [Device(name=name, **table) for name, table in _read_toml("devices.toml").items()]


def find_model(name_or_path: str) -> Model:
    """Return a model of the shipped list, or the one that a Hugging Face config describes.

    Parameters
    ----------
    name_or_path
        A name of the list or of the hub (``meta-llama/Llama-3.1-8B-Instruct``), a ``config.json``
        or a folder that holds one.

    Raises
    ------
    ProfileError
        If there is no such model, with the nearest names, or the file cannot be used.
    """
    path = Path(name_or_path)
    if path.is_dir() and (path / "config.json").is_file():
        path = path / "config.json"
    if path.suffix == ".json":
        return read_config(path)
    name = name_or_path.rsplit("/", 1)[-1].casefold().replace("_", "-")
    for ending in _ENDINGS:
        name = name.removesuffix(ending)
    known = {model.name: model for model in models()}
    if name in known:
        return known[name]
    raise ProfileError(
        f"model {name_or_path!r} is neither in the list nor a config.json; "
        f"{did_you_mean(name, known)} (the whole list: simkv models)"
    )


def find_device(name: str) -> Device:
    """Return a device of the shipped list; ProfileError with the nearest names otherwise."""
    known = {device.name: device for device in devices()}
    wanted = name.casefold().replace("_", "-").replace(" ", "-")
    if wanted in known:
        return known[wanted]
    raise ProfileError(f"no device {name!r} is known; {did_you_mean(wanted, known)}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return half a sentence that names what is closest to ``name``, or everything."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    near += [other for other in names if name and name in other and other not in near]
    if near:
        return f"did you mean {' or '.join(near[:3])}?"
    return f"known are {', '.join(names)}"


def read_config(path: Path) -> Model:
    """Return the model that a Hugging Face ``config.json`` describes.

    Architectures read: ``llama``, ``mistral``, ``qwen2``, ``qwen3``, ``opt``, ``deepseek_v3``.
    """
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read ({error.strerror or error})") from error
    except ValueError as error:
        raise ProfileError(f"{path}: is not JSON ({error})") from error
    if not isinstance(config, dict):
        raise ProfileError(f"{path}: expected a JSON object, got a {type(config).__name__}")
    keys = _Keys(path, config)
    kind = config.get("model_type")
    if kind in ("llama", "mistral", "qwen2", "qwen3"):
        return _llama_like(keys, kind)
    if kind == "opt":
        return _opt(keys)
    if kind == "deepseek_v3":
        return _deepseek(keys)
    raise ProfileError(
        f"{path}: model_type is {kind!r}, expected llama, mistral, qwen2, qwen3, opt or "
        "deepseek_v3; other architectures are not described yet"
    )


class _Keys:
    """Keys of a config file, each checked when it is asked for."""

    def __init__(self, path: Path, config: Mapping[str, Any]) -> None:
        self._path = path
        self._config = config
        self.name = path.parent.name or path.stem
        self.source = str(path)

    def whole(self, key: str, default: int | None = None, *, least: int = 1) -> int:
        """Return a whole number, ``least`` or more; ``default`` where the key is absent or null."""
        value = self._config.get(key)
        if value is None:
            value = default
        if value is None:
            raise ProfileError(f"{self._path}: the key {key} is missing, expected a whole number")
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ProfileError(
                f"{self._path}: {key} is {value!r}, expected a whole number, {least} or more"
            )
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        """Return a truth value."""
        value = self._config.get(key, default)
        if not isinstance(value, bool):
            raise ProfileError(f"{self._path}: {key} is {value!r}, expected true or false")
        return value


def _llama_like(keys: _Keys, kind: str) -> Model:
    heads, hidden = keys.whole("num_attention_heads"), keys.whole("hidden_size")
    window = keys.whole("sliding_window", 0, least=0) or None
    if kind != "mistral" and not keys.flag("use_sliding_window", default=False):
        window = None
    return Model(
        name=keys.name,
        source=keys.source,
        num_layers=keys.whole("num_hidden_layers"),
        hidden=hidden,
        num_query_heads=heads,
        num_kv_heads=keys.whole("num_key_value_heads", heads),
        head_dim=keys.whole("head_dim", hidden // max(1, heads)),
        intermediate=keys.whole("intermediate_size"),
        vocab=keys.whole("vocab_size"),
        max_position_tokens=keys.whole("max_position_embeddings"),
        tied_embeddings=keys.flag("tie_word_embeddings", default=False),
        sliding_window_tokens=window,
    )


def _opt(keys: _Keys) -> Model:
    heads, hidden = keys.whole("num_attention_heads"), keys.whole("hidden_size")
    positions = keys.whole("max_position_embeddings")
    return Model(
        name=keys.name,
        source=keys.source,
        num_layers=keys.whole("num_hidden_layers"),
        hidden=hidden,
        num_query_heads=heads,
        num_kv_heads=heads,
        head_dim=hidden // max(1, heads),
        intermediate=keys.whole("ffn_dim"),
        vocab=keys.whole("vocab_size"),
        max_position_tokens=positions,
        # OPT keeps two extra rows before position 0.
        num_learned_positions=positions + 2,
        gated_mlp=False,
        tied_embeddings=keys.flag("tie_word_embeddings", default=True),
    )


def _deepseek(keys: _Keys) -> Model:
    heads = keys.whole("num_attention_heads")
    return Model(
        name=keys.name,
        source=keys.source,
        num_layers=keys.whole("num_hidden_layers"),
        hidden=keys.whole("hidden_size"),
        num_query_heads=heads,
        num_kv_heads=heads,
        head_dim=keys.whole("v_head_dim"),
        intermediate=keys.whole("intermediate_size"),
        vocab=keys.whole("vocab_size"),
        max_position_tokens=keys.whole("max_position_embeddings"),
        tied_embeddings=keys.flag("tie_word_embeddings", default=False),
        latent=Latent(
            kv_rank=keys.whole("kv_lora_rank"),
            rope_dim=keys.whole("qk_rope_head_dim"),
            query_rank=keys.whole("q_lora_rank"),
            nope_dim=keys.whole("qk_nope_head_dim"),
            value_dim=keys.whole("v_head_dim"),
        ),
        experts=Experts(
            num_routed=keys.whole("n_routed_experts"),
            num_active=keys.whole("num_experts_per_tok"),
            num_shared=keys.whole("n_shared_experts", 0, least=0),
            intermediate=keys.whole("moe_intermediate_size"),
            num_dense_layers=keys.whole("first_k_dense_replace", 0, least=0),
        ),
    )


def _read_toml(name: str) -> dict[str, dict[str, Any]]:
    with (_FOLDER / name).open("rb") as file:
        return tomllib.load(file)
