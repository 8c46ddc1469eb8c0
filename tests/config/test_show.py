import dataclasses
from pathlib import Path

import pytest
from hypothesis import given, settings

from simkv.config.load import Resolved, config_to_mapping, load_config, resolve
from simkv.config.run import RunConfig
from simkv.config.show import meanings_of, show_config, unit_of
from simkv.config.tree import leaves
from simkv.kv.layout import Paged
from tests.config.strategies import run_configs


@given(run_configs)
@settings(max_examples=30)
def test_what_is_shown_reads_back(
    tmp_path_factory: pytest.TempPathFactory, config: RunConfig
) -> None:
    file = tmp_path_factory.mktemp("shown") / "run.toml"
    file.write_text(show_config(Resolved(config=config, origin={})), encoding="utf-8")
    assert load_config(file) == config


def test_every_key_is_shown_with_its_origin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run.toml").write_text("[kv]\nblock_tokens = 7\n")
    lines = show_config(resolve(Path("run.toml"), sets=["objectives.ttft_s=1"])).splitlines()
    assert "block_tokens = 7  # tokens; from run.toml:2" in lines
    assert "ttft_s = 1.0  # seconds; from --set" in lines
    assert "tpot_s = 0.1  # seconds; default" in lines
    assert 'kind = "paged"  # one of paged, contiguous-max; default' in lines
    keys = [line.partition(" = ")[0] for line in lines if " = " in line and line[0] != "#"]
    shown = [key.rpartition(".")[2] for key in leaves(config_to_mapping(RunConfig()))]
    assert sorted(keys) == sorted(shown)


def test_meanings_come_from_the_docstring() -> None:
    assert meanings_of(Paged)["block_tokens"].startswith("Slots in a block")
    assert set(meanings_of(Paged)) <= {field.name for field in dataclasses.fields(Paged)}


def test_units_come_from_the_name() -> None:
    assert unit_of("host_overhead_s") == "seconds"
    assert unit_of("rate_per_s") == "per second"
    assert unit_of("max_num_batched_tokens") == "tokens"
    assert unit_of("num_replicas") == "count"
    assert unit_of("policy") is None
