import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from simkv.config.run import RunConfig
from simkv.config.tree import build, defaults_of, overlaid, to_mapping
from simkv.cost.choice import Linear, MeasuredTable, Roofline
from simkv.kv.layout import ContiguousMax, NoSharing, Paged
from tests.config.strategies import run_configs


def laid(*changes: dict[str, Any]) -> RunConfig:
    mapping = to_mapping(RunConfig())
    for change in changes:
        mapping = overlaid(mapping, change, RunConfig)
    built: RunConfig = build(RunConfig, mapping)
    return built


@given(run_configs)
def test_a_config_survives_its_mapping_and_json(config: RunConfig) -> None:
    mapping = to_mapping(config)
    assert build(RunConfig, mapping) == config
    assert build(RunConfig, json.loads(json.dumps(mapping))) == config


@given(run_configs, run_configs)
def test_a_complete_mapping_hides_everything_below_it(one: RunConfig, other: RunConfig) -> None:
    assert overlaid(to_mapping(one), to_mapping(other), RunConfig) == to_mapping(other)


@given(run_configs, st.sampled_from(["table", "roofline", "linear"]))
def test_a_changed_kind_leaks_nothing(config: RunConfig, kind: str) -> None:
    classes = {"table": MeasuredTable, "roofline": Roofline, "linear": Linear}
    cost = overlaid(to_mapping(config), {"cost": {"kind": kind}}, RunConfig)["cost"]
    same = config.cost.kind == kind
    assert cost == (to_mapping(config.cost) if same else defaults_of(classes[kind]))


def test_a_repeated_kind_keeps_the_rest() -> None:
    config = laid({"kv": {"block_tokens": 7}}, {"kv": {"kind": "paged", "num_blocks": 9}})
    assert config.kv == Paged(block_tokens=7, num_blocks=9)


def test_kinds_change_within_kinds() -> None:
    assert laid({"kv": {"sharing": {"kind": "none"}}}).kv == Paged(sharing=NoSharing())
    there_and_back = laid({"kv": {"kind": "contiguous-max"}}, {"kv": {"kind": "paged"}})
    assert there_and_back.kv == Paged()


def test_none_is_said_as_text_where_a_key_may_be_none() -> None:
    config = laid({"kv": {"kind": "contiguous-max", "num_slots": 5}}, {"kv": {"num_slots": "none"}})
    assert config.kv == ContiguousMax()
    assert laid({"workload": {"format": "none"}}).workload.format == "none"


def test_whole_numbers_become_floats_where_floats_are_meant() -> None:
    ttft_s = laid({"objectives": {"ttft_s": 2}}).objectives.ttft_s
    assert type(ttft_s) is float
    assert type(laid({"seed": 2}).seed) is int
