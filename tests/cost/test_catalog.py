"""Models and devices: counts against what their publishers state."""

import json
from pathlib import Path

import pytest

from simkv.cost.catalog import devices, find_device, find_model, models
from simkv.cost.geometry import Model
from simkv.errors import ConfigError, ProfileError


@pytest.mark.parametrize("model", models(), ids=lambda model: model.name)
def test_parameters_are_within_one_percent_of_the_published_count(model: Model) -> None:
    assert model.published_parameters is not None
    assert model.total_parameters == pytest.approx(model.published_parameters, rel=0.01)


@pytest.mark.parametrize(
    ("name", "kib"),
    [
        ("llama-3.1-8b", 128),
        ("llama-3.1-70b", 320),
        ("opt-13b", 800),  # PagedAttention, SOSP 2023, section 3: 800 KB a token
        ("qwen3-8b", 144),
        ("deepseek-v3", 68.625),  # 576 elements x 61 layers x 2 bytes
    ],
)
def test_kv_bytes_of_a_token(name: str, kib: float) -> None:
    assert find_model(name).kv_bytes_per_token("bf16") == kib * 1024
    assert find_model(name).kv_bytes_per_token("fp8") == kib * 1024 / 2


def test_deepseek_computes_with_37_billion_parameters() -> None:
    model = find_model("deepseek-v3")
    assert model.active_parameters == pytest.approx(37e9, rel=0.02)


def test_a_rank_holds_its_share_of_the_kv_heads_or_a_copy() -> None:
    model = find_model("llama-3.1-70b")
    assert model.kv_bytes_per_token("bf16", 4) * 4 == model.kv_bytes_per_token("bf16")
    # 16 ranks, 8 KV heads: each rank keeps one whole head.
    assert model.kv_bytes_per_token("bf16", 16) == model.kv_bytes_per_token("bf16", 8)
    latent = find_model("deepseek-v3")
    assert latent.kv_bytes_per_token("bf16", 8) == latent.kv_bytes_per_token("bf16")


def test_heads_that_cannot_be_shared_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"14 query and 2 KV heads.*take one of 1, 2"):
        find_model("qwen2.5-0.5b").check_tensor_parallel(4)


def test_names_are_found_as_people_write_them() -> None:
    assert find_model("meta-llama/Llama-3.1-8B-Instruct").name == "llama-3.1-8b"
    assert find_device("RTX 4090").name == "rtx-4090"


def test_unknown_names_get_the_nearest() -> None:
    with pytest.raises(ProfileError, match=r"did you mean llama-3\.1-8b"):
        find_model("lama-3.1-8b")
    with pytest.raises(ProfileError, match="did you mean h200 or h100"):
        find_device("h2000")
    with pytest.raises(ProfileError, match="known are a100-40gb"):
        find_device("?")


def test_names_are_unique() -> None:
    for names in ([m.name for m in models()], [d.name for d in devices()]):
        assert len(names) == len(set(names))


_LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}


def _write(folder: Path, config: object) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return str(path)


def test_a_hugging_face_config_gives_the_listed_model(tmp_path: Path) -> None:
    model, listed = find_model(_write(tmp_path, _LLAMA)), find_model("llama-3.1-8b")
    assert model.total_parameters == listed.total_parameters
    assert model.kv_bytes_per_token("bf16") == listed.kv_bytes_per_token("bf16")
    assert find_model(str(tmp_path)) == model


def test_opt_and_deepseek_configs(tmp_path: Path) -> None:
    opt = {"model_type": "opt", "num_hidden_layers": 40, "hidden_size": 5120, "ffn_dim": 20480,
           "num_attention_heads": 40, "vocab_size": 50272,
           "max_position_embeddings": 2048}  # fmt: skip
    assert find_model(_write(tmp_path, opt)).total_parameters == (
        find_model("opt-13b").total_parameters
    )
    deepseek = {"model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168,
                "num_attention_heads": 128, "intermediate_size": 18432, "vocab_size": 129280,
                "max_position_embeddings": 163840, "kv_lora_rank": 512, "qk_rope_head_dim": 64,
                "q_lora_rank": 1536, "qk_nope_head_dim": 128, "v_head_dim": 128,
                "n_routed_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": 1,
                "moe_intermediate_size": 2048, "first_k_dense_replace": 3}  # fmt: skip
    assert find_model(_write(tmp_path, deepseek)).total_parameters == (
        find_model("deepseek-v3").total_parameters
    )


def test_a_window_counts_only_where_it_is_switched_on(tmp_path: Path) -> None:
    qwen = _LLAMA | {"model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": False}
    assert find_model(_write(tmp_path, qwen)).sliding_window_tokens is None
    mistral = _LLAMA | {"model_type": "mistral", "sliding_window": 4096}
    assert find_model(_write(tmp_path, mistral)).sliding_window_tokens == 4096


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"model_type": "mamba"}, "model_type is 'mamba', expected llama"),
        ({"model_type": "llama"}, "the key num_attention_heads is missing"),
        (_LLAMA | {"vocab_size": "many"}, "vocab_size is 'many', expected a whole number"),
        (_LLAMA | {"hidden_size": 0}, "hidden_size is 0, expected a whole number, 1 or more"),
        (_LLAMA | {"num_key_value_heads": 0}, "num_key_value_heads is 0, expected a whole"),
        ([], "expected a JSON object, got a list"),
    ],
)
def test_unusable_configs_get_one_sentence(tmp_path: Path, config: object, sentence: str) -> None:
    path = _write(tmp_path, config)
    with pytest.raises(ProfileError) as caught:
        find_model(path)
    assert sentence in str(caught.value)
    assert str(caught.value).startswith(path)


def test_missing_and_broken_config_files(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="cannot be read"):
        find_model(str(tmp_path / "absent.json"))
    (tmp_path / "broken.json").write_text("{", encoding="utf-8")
    with pytest.raises(ProfileError, match="is not JSON"):
        find_model(str(tmp_path / "broken.json"))
