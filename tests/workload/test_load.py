"""From a path or a configured workload to a trace."""

import gzip
import json

import numpy as np
import pytest

from simkv.errors import InputError, TraceError
from simkv.workload.load import load, read_trace
from simkv.workload.readers.format import HEAD_BYTES, Head, lines
from simkv.workload.readers.formats import FORMATS, find_format
from simkv.workload.source import TraceFile, Transform


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        (("azure-2023", "AzureLLMInferenceTrace_conv.csv"), "azure"),
        (("azure-2024", "AzureLLMInferenceTrace_conv_1week.10rows.csv"), "azure"),
        (("azure-2025-lmm", "AzureLMMInferenceTrace_multimodal.10rows.csv"), "azure"),
        (("vidur", "splitwise_conv.csv"), "vidur"),
        (("mooncake", "conversation_trace.jsonl"), "mooncake"),
        (("llmservingsim", "example_trace.jsonl"), "llmservingsim"),
        (("lmcache-agent-trace", "miniswe"), "lmcache"),
    ],
)
def test_auto_recognises_real_files(shared, parts, name):
    path = shared("data", "traces", *parts)
    auto, named = read_trace(path), read_trace(path, format=name)
    assert auto.num_requests == named.num_requests
    assert auto.notes == named.notes


RECOGNISED = {
    "azure": "TIMESTAMP,ContextTokens,GeneratedTokens\n",
    "vidur": "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n",
    "burstgpt": "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n",
    "csv": "arrival_s,prompt_tokens,output_tokens\n",
    "mooncake": '{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": [0]}\n',
    "llmservingsim": '{"input_toks":1,"output_toks":1,"arrival_time_ns":1}\n',
    "lmcache": '{"timestamp": 1, "input": "a", "output": "b", "session_id": "s"}\n',
    "aibrix": '{"timestamp": 19, "requests": []}\n',
    "chat": '{"custom_id": "1", "body": {"messages": []}}\n',
    "simkv": "PAR1",
}


@pytest.mark.parametrize("name", RECOGNISED)
def test_exactly_one_format_recognises_a_file(name):
    head = Head(name="trace", data=RECOGNISED[name].encode())
    assert [known.name for known in FORMATS if known.recognise(head)] == [name]


def test_no_name_is_not_the_current_folder():
    with pytest.raises(TraceError, match="no trace was named; give a file, a folder or sample:"):
        read_trace("")


def test_an_object_longer_than_the_head_shows_its_keys():
    row = {"custom_id": "1", "body": {"messages": [{"content": "x" * HEAD_BYTES}]}, "late": 1}
    head = Head(name="t", data=json.dumps(row).encode()[:HEAD_BYTES])
    assert head.keys() == {"custom_id", "body"}


def test_an_unknown_format_is_told_the_known_ones(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("who,knows\n1,2\n")
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: is of no known format (it starts with 'who,knows')")
    for known in FORMATS:
        assert known.name in message
    with pytest.raises(InputError, match="unknown trace format 'azur'; expected auto or one of: "):
        find_format("azur")


def test_paths_that_lead_nowhere(tmp_path):
    with pytest.raises(TraceError, match="there is no such file or folder"):
        read_trace(tmp_path / "none.csv")
    (tmp_path / "inner").mkdir()
    with pytest.raises(TraceError, match=r"holds no trace file .*; name one of its folders: inner"):
        read_trace(tmp_path)
    (tmp_path / "empty.csv").write_text("\n")
    with pytest.raises(TraceError, match="holds nothing"):
        read_trace(tmp_path / "empty.csv")
    with pytest.raises(TraceError, match="sample:none: there is no such sample; there are: "):
        read_trace("sample:none")


def test_broken_bytes_are_a_clear_error(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"prompt": "a"}\n{"prompt": "\xff"}\n')
    with pytest.raises(TraceError, match="is no UTF-8 text"):
        list(lines(path))
    path.write_bytes(b"\x1f\x8b\x08\x00broken")
    with pytest.raises(TraceError, match="is no whole gzip file"):
        read_trace(path)


@pytest.mark.parametrize("name", ["t.csv.gz", "t.jsonl.gz"])
def test_a_truncated_gzip_is_a_clear_error(tmp_path, name):
    path = tmp_path / name
    rows = "".join(f"{at * 7919 % 10007},1\n" for at in range(40_000))
    jsons = "".join(f'{{"prompt": "{at * 7919 % 10007}"}}\n' for at in range(40_000))
    text = "prompt_tokens,output_tokens\n" + rows if "csv" in name else jsons
    path.write_bytes(gzip.compress(text.encode())[:-5000])
    with pytest.raises(TraceError, match="is no whole gzip file"):
        read_trace(path)


def test_a_configured_trace_is_transformed(tmp_path):
    path = tmp_path / "t.csv"
    rows = "".join(f"{at},{at + 1},1\n" for at in range(10))
    path.write_text("arrival_s,prompt_tokens,output_tokens\n" + rows)
    workload = TraceFile(path=str(path), transform=Transform(start_s=2.0, duration_s=4.0))
    trace = load(workload, seed=0)
    assert trace.prompt_tokens.tolist() == [3, 4, 5, 6]
    assert np.array_equal(trace.arrival_s, [0.0, 1.0, 2.0, 3.0])
