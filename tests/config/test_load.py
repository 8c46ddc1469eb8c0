import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings

from simkv.config.load import (
    apply_sets,
    config_from_mapping,
    config_to_mapping,
    line_of,
    load_config,
    read_json_config,
    resolve,
)
from simkv.config.run import RunConfig
from simkv.errors import ConfigError
from simkv.kv.layout import ContiguousMax, NoSharing, Paged
from simkv.workload.source import TraceFile
from tests.config.strategies import run_configs


def error_of(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *sets: str) -> str:
    """What loading this file says, with the file named as the user named it."""
    monkeypatch.chdir(tmp_path)
    Path("run.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(Path("run.toml"), sets=sets)
    return str(caught.value)


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_bytes(b"\xef\xbb\xbfseed = 3\n")
    assert load_config(file).seed == 3


def test_the_packaged_default_is_the_default() -> None:
    assert load_config() == RunConfig()


def test_layers_lie_over_each_other(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("seed = 3\n[kv]\nblock_tokens = 7\nnum_blocks = 9\n[kv.sharing]\nkind='none'\n")
    config = load_config(file, mapping={"kv": {"num_blocks": 10}}, sets=["kv.block_tokens=32"])
    assert config.seed == 3
    assert config.kv == Paged(block_tokens=32, num_blocks=10, sharing=NoSharing())


def test_a_set_that_changes_the_kind_drops_what_the_file_said_of_the_other(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("[kv]\nblock_tokens = 7\n")
    resolved = resolve(file, sets=["kv.num_slots=100", "kv.kind=contiguous-max"])
    assert resolved.config.kv == ContiguousMax(num_slots=100)
    assert set(resolved.origin) == {"kv.kind", "kv.num_slots"}


def test_origins_name_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("seed = 3\n\n[kv]\nblock_tokens = 7\n")
    assert resolve(file, sets=["seed=4"]).origin == {
        "seed": "--set seed=4",
        "kv.block_tokens": f"{file}:4",
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("workload.path=bare-word", "bare-word"),
        ('workload.path="quoted"', "quoted"),
        ("workload.path=a=b", "a=b"),
        ("workload.path=2024-01-01", "2024-01-01"),
        ("workload.path=sample:x#1", "sample:x#1"),
        ("workload={path='inline'}", "inline"),
        (" workload.path = spaces ", "spaces"),
    ],
)
def test_values_are_toml_and_bare_words_are_text(text: str, value: str) -> None:
    assert load_config(sets=[text]).workload == TraceFile(path=value)


def test_the_last_set_counts() -> None:
    assert load_config(sets=["seed=1", "seed=2"]).seed == 2


@given(run_configs)
def test_a_mapping_reads_back(config: RunConfig) -> None:
    assert config_from_mapping(config_to_mapping(config)) == config


@given(run_configs)
@settings(max_examples=20)
def test_a_json_file_reads_back(
    tmp_path_factory: pytest.TempPathFactory, config: RunConfig
) -> None:
    file = tmp_path_factory.mktemp("json") / "pick.json"
    file.write_text(json.dumps(config_to_mapping(config)))
    assert read_json_config(file) == config


def test_applied_sets_give_a_complete_mapping() -> None:
    assert apply_sets({"seed": 1}, ["kv.block_tokens=7"]) == config_to_mapping(
        RunConfig(seed=1, kv=Paged(block_tokens=7))
    )


def test_a_resolved_json_needs_no_pydantic(tmp_path: Path) -> None:
    file = tmp_path / "pick.json"
    file.write_text(json.dumps(config_to_mapping(RunConfig(seed=5))))
    code = (
        "import sys; sys.modules['pydantic'] = sys.modules['cyclopts'] = None\n"
        "from pathlib import Path\n"
        "from simkv.config.load import config_to_mapping, read_json_config\n"
        f"print(config_to_mapping(read_json_config(Path({str(file)!r})))['seed'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "5\n"


def test_paths_in_a_file_are_relative_to_it_where_they_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "t.csv").touch()
    (folder / "run.toml").write_text("[workload]\npath = 't.csv'\n")
    (folder / "other.toml").write_text("[workload]\npath = 'elsewhere.csv'\n")
    (folder / "llama-3.1-8b").mkdir()  # a folder called like a model is not meant
    monkeypatch.chdir(tmp_path)
    assert load_config(Path("mine/run.toml")).workload == TraceFile(path="mine/t.csv")
    assert load_config(Path("mine/other.toml")).workload == TraceFile(path="elsewhere.csv")
    assert load_config(Path("mine/run.toml")).model.name == "llama-3.1-8b"


def test_lines_are_found_in_every_way_to_write_a_key() -> None:
    text = 'seed = 1\n[kv]\n  "block_tokens" = 2\nsharing.kind = "none"\n[ workload . transform ]\n'
    assert line_of(text, "seed") == 1
    assert line_of(text, "kv.block_tokens") == 3
    assert line_of(text, "kv.sharing.kind") == 4
    assert line_of(text, "kv.num_blocks") == 2
    assert line_of(text, "workload.transform.loop") == 5
    assert line_of(text, "cost.kind") is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[kv]\nblock_token = 1\n", "run.toml:2: kv.block_token: unknown key (did you mean "
         "block_tokens?); valid keys of kv of kind \"paged\": {paged}"),
        ("[kvv]\n", "run.toml:1: kvv: unknown key (did you mean kv?); valid keys of the top "
         "level: seed, workload, model, device, kv, sched, cost, cluster, objectives, measure"),
        ("[cost]\nflops_ratio = 0.5\n", "run.toml:2: cost.flops_ratio: cost of kind \"table\" has "
         "no such key, only kind \"roofline\" has; set cost.kind or remove it (valid keys: kind, "
         "profile, host_overhead_s)"),
        ("[kv]\nblock_tokens = '16'\n", "run.toml:2: kv.block_tokens: expected a whole number, got "
         "\"16\"; write it without quotes"),
        ("[kv]\nblock_tokens = 1.5\n",
         "run.toml:2: kv.block_tokens: expected a whole number, got 1.5"),
        ("[kv]\nblock_tokens = true\n",
         "run.toml:2: kv.block_tokens: expected a whole number, got true"),
        ("[kv]\nnum_blocks = 'all'\n",
         "run.toml:2: kv.num_blocks: expected a whole number or \"none\", got \"all\""),
        ("[objectives]\nttft_s = nan\n",
         "run.toml:2: objectives.ttft_s: expected a number, got nan"),
        ("[measure]\ndrain = 1\n", "run.toml:2: measure.drain: expected true or false, got 1"),
        ("[model]\nname = 1\n", "run.toml:2: model.name: expected text, got 1"),
        ("kv = 1\n", "run.toml:1: kv: expected a table, got 1; set kv.kind to \"paged\" or "
         "\"contiguous-max\""),
        ("[kv]\nkind = 'pagd'\n", "run.toml:2: kv.kind: expected \"paged\" or \"contiguous-max\", "
         "got \"pagd\" (did you mean paged?)"),
        ("[kv]\nkind = 3\n",
         "run.toml:2: kv.kind: expected \"paged\" or \"contiguous-max\", got 3"),
        ("[sched]\nkind = 'v1'\n", "run.toml:2: sched.kind: expected \"vllm-v1\", got \"v1\""),
        ("[sched]\npolicy = 'lifo'\n",
         "run.toml:2: sched.policy: expected \"fcfs\" or \"priority\", got \"lifo\""),
        ("[kv]\nblock_tokens = 0\n",
         "run.toml:2: kv.block_tokens: 0 is not a block size, expected 1 or more"),
        ("[workload]\nkind = 'synthetic'\n[workload.prompt]\nkind = 'empirical'\n",
         "run.toml:3: workload.prompt.path: missing, expected text"),
        ("[kv]\nkind =\n", "run.toml:2: not TOML: invalid value"),
        ("a = 1\na = 2\n", "run.toml:2: not TOML: cannot overwrite a value"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_file_is_one_sentence(
    text: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paged = ", ".join(config_to_mapping(RunConfig())["kv"])
    assert error_of(text, tmp_path, monkeypatch) == sentence.replace("{paged}", paged)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("kv.block_tokens", "--set kv.block_tokens: expected KEY=VALUE such as kv.block_tokens=32"),
        ("kv..x=1", "--set kv..x=1: expected KEY=VALUE such as kv.block_tokens=32"),
        ("model.name='a", "--set model.name='a: not a TOML value; close its quotes and brackets, "
         "and mind the shell"),
        ("kv.block_tokens=big",
         "--set kv.block_tokens=big: kv.block_tokens: expected a whole number, got \"big\""),
        ("kv.sharing=none", "--set kv.sharing=none: kv.sharing: expected a table, got \"none\"; "
         "set kv.sharing.kind to \"none\" or \"hash-chain\""),
        ("objectives.ttft_s=0",
         "--set objectives.ttft_s=0: objectives.ttft_s: got 0.0, expected more than 0"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_set_is_one_sentence(
    text: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The file says something of the same table, and is not the one to blame.
    assert error_of("[kv]\nnum_blocks = 100\n", tmp_path, monkeypatch, text) == sentence


def test_the_dotted_path_stays_with_the_error(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("[kv]\nblock_tokens = 0\n")
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    assert caught.value.path == "kv.block_tokens"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"PAR1\xff\xfe")
    for name, reason in (
        ("absent.toml", "no such file; check the path"),
        ("", "cannot be read (Is a directory)"),
        ("binary", "not a text file in UTF-8; is this a configuration?"),
    ):
        path = tmp_path / name
        with pytest.raises(ConfigError) as caught:
            load_config(path)
        assert str(caught.value) == f"{path}: {reason}"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ('{"seed": ', ":1: not JSON: Expecting value"),
        ("[]", ": expected a JSON object with a configuration"),
        ("{}", ": seed: missing key; expected a complete configuration of this version of simkv"),
    ],
)
def test_json_that_is_no_whole_configuration(change: str, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "pick.json"
    file.write_text(change)
    with pytest.raises(ConfigError) as caught:
        read_json_config(file)
    assert str(caught.value) == f"{file}{reason}"


def test_a_pick_is_read_by_both_readers(tmp_path: Path) -> None:
    config = RunConfig(seed=5, kv=ContiguousMax())
    file = tmp_path / "01-pick.json"
    file.write_text(json.dumps(config_to_mapping(config)))
    assert read_json_config(file) == load_config(file) == config


def test_json_with_a_wrong_value(tmp_path: Path) -> None:
    file = tmp_path / "pick.json"
    mapping = config_to_mapping(RunConfig())
    for table, key, value in (("kv", "kind", "pagd"), ("kv", "new", 1), ("kv", "num_blocks", "x")):
        file.write_text(json.dumps({**mapping, table: {**mapping[table], key: value}}))
        with pytest.raises(ConfigError, match=str(file)):
            read_json_config(file)
