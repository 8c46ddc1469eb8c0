"""Formats with token ids or text: real files, and each quirk in a few lines."""

import gzip
import itertools
import json
import re
import sys

import numpy as np
import pytest

from simkv.errors import InputError, TraceError
from simkv.workload.describe import repeated_tokens
from simkv.workload.load import read_trace


def written(tmp_path, rows, name="trace.jsonl"):
    path = tmp_path / name
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows))
    return path


def prefix(trace, a, b):
    """Tokens that two requests share from their start."""
    shared = 0
    for (id_a, tokens_a), (id_b, tokens_b) in zip(
        trace.segments(a), trace.segments(b), strict=False
    ):
        if id_a != id_b:
            break
        shared += min(tokens_a, tokens_b)
    return shared


# LLMServingSim


def test_llmservingsim_ids_against_all_pairs(shared):
    path = shared("data", "traces", "llmservingsim", "example_trace.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows.sort(key=lambda row: row["arrival_time_ns"])
    trace = read_trace(path)
    assert trace.granularity_tokens == 1
    assert trace.arrival_s[0] == 0.046926808
    tokens = [row["input_tok_ids"] + row["output_tok_ids"] for row in rows]
    for i, left in enumerate(tokens):
        assert trace.prompt_tokens[i] == rows[i]["input_toks"]
        for j, right in enumerate(tokens[:i]):
            equal = np.array(left[: len(right)]) == np.array(right[: len(left)])
            assert prefix(trace, i, j) == (int(np.argmin(equal)) if not equal.all() else len(equal))


def test_llmservingsim_300_requests(shared):
    path = shared("data", "traces", "llmservingsim", "sharegpt-llama-3.1-8b-300-sps10.jsonl.gz")
    trace = read_trace(path)
    assert trace.num_requests == 300
    assert trace.prompt_tokens.sum() == 257_239
    assert trace.output_tokens.sum() == 195_753
    assert trace.arrival_s[-1] == 29.183763203
    sums = [sum(n for _, n in trace.segments(row)) for row in range(300)]
    assert sums == (trace.prompt_tokens + trace.output_tokens).tolist()


def test_nanosecond_strings_beyond_2_to_the_53_are_exact(tmp_path):
    start_ns = 1_760_587_752_017_385_001
    rows = [
        {"input_toks": 1, "output_toks": 1, "arrival_time_ns": str(start_ns)},
        {"input_toks": 2, "output_toks": 1, "arrival_time_ns": start_ns + 1},
    ]
    trace = read_trace(written(tmp_path, rows))
    assert trace.arrival_s.tolist() == [0.0, 1e-9]
    assert trace.granularity_tokens == 0


def test_llmservingsim_sessions_wait_for_tools(tmp_path):
    rows = [
        {
            "session_id": "a",
            "arrival_time_ns": 5_000_000_000,
            "sub_requests": [
                {
                    "input_toks": 3,
                    "output_toks": 2,
                    "tool_duration_ns": 1_500_000_000,
                    "input_tok_ids": [1, 2, 3],
                    "output_tok_ids": [4, 5],
                },
                {
                    "input_toks": 6,
                    "output_toks": 1,
                    "tool_duration_ns": 0,
                    "input_tok_ids": [1, 2, 3, 4, 5, 6],
                    "output_tok_ids": [7],
                },
            ],
        },
        {"input_toks": 1, "output_toks": 1, "arrival_time_ns": 0},
    ]
    trace = read_trace(written(tmp_path, rows))
    assert trace.prompt_tokens.tolist() == [1, 3, 6]
    assert trace.arrival_s[:2].tolist() == [0.0, 5.0]
    assert np.isnan(trace.arrival_s[2])
    assert trace.session.tolist() == [-1, 0, 0]
    assert trace.after.tolist() == [-1, -1, 1]
    assert trace.think_s[2] == 1.5
    assert prefix(trace, 1, 2) == 5  # the next turn holds what was generated


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"input_toks": 2, "output_toks": 0, "arrival_time_ns": 1, "input_tok_ids": [1]},
            "input_tok_ids holds 1 ids, but input_toks is 2",
        ),
        (
            {"input_toks": -2, "output_toks": 0, "arrival_time_ns": 1},
            "input_toks is -2, expected a whole number, 0 or more",
        ),
        (
            {"input_toks": 2, "arrival_time_ns": 1},
            "output_toks is missing (found input_toks, arrival_time_ns), expected",
        ),
        ({"input_toks": 2, "output_toks": 0, "arrival_time_ns": "x"}, "arrival_time_ns is 'x'"),
        ({"input_toks": 2, "output_toks": 0, "arrival_time_ns": 1e30}, "arrival_time_ns is 1e+30"),
        (
            {"input_toks": 10**10, "output_toks": 0, "arrival_time_ns": 1},
            "input_toks is 10000000000, expected a whole number, 0 or more, at most 1,000,000,000",
        ),
        (
            {"input_toks": 2, "output_toks": 0, "arrival_time_ns": 1, "input_tok_ids": 7},
            "input_tok_ids is no list of whole numbers",
        ),
    ],
)
def test_llmservingsim_errors(tmp_path, row, message):
    good = {"input_toks": 2, "output_toks": 0, "arrival_time_ns": 0}
    path = written(tmp_path, [good, row])
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    assert str(caught.value).startswith(f"{path}:2: {message}")


# LMCache agent logs


def test_lmcache_taubench(shared):
    folder = shared("data", "traces", "lmcache-agent-trace", "taubench")
    trace = read_trace(folder)
    assert trace.num_requests == 471
    assert len(np.unique(trace.session)) == 24
    assert (np.diff(trace.arrival_s) >= 0).all()
    assert "283 requests have no output token" in trace.notes
    empty = "empty files were skipped: ea09a0dc475dbe00b56101ef665b8c03.jsonl"
    assert empty in trace.notes
    # 249 of 447 inputs begin with the text of the input before; words keep that.
    extends = sum(
        trace.after[row] >= 0
        and trace.prompt_tokens[row] >= trace.prompt_tokens[trace.after[row]]
        and prefix(trace, row, trace.after[row]) >= trace.prompt_tokens[trace.after[row]]
        for row in range(471)
    )
    assert extends >= 249


def test_lmcache_is_unsorted_within_its_files(shared):
    folder = shared("data", "traces", "lmcache-agent-trace", "taubench")
    inversions = 0
    for path in folder.iterdir():
        times = [json.loads(line)["timestamp"] for line in path.read_text().splitlines()]
        inversions += sum(late < early for early, late in itertools.pairwise(times))
    assert inversions == 134  # of the publisher's files; sorting them away must not fail
    trace = read_trace(folder)
    same = trace.session[:, None] == trace.session[None, :]
    for row in range(1, trace.num_requests):
        earlier = np.flatnonzero(same[row, :row])
        assert trace.turn[row] == len(earlier)
        assert trace.after[row] == (earlier[-1] if len(earlier) else -1)


def test_lmcache_gzip_and_empty_input(tmp_path):
    rows = [
        {"timestamp": 1760587752311222, "input": "b c", "output": "d", "session_id": "s"},
        {"timestamp": 1760587752311220, "input": "", "output": "a", "session_id": "s"},
        {"timestamp": 1760587752311221, "input": "b", "output": "c", "session_id": "s"},
    ]
    path = tmp_path / "s.jsonl.gz"
    path.write_bytes(gzip.compress("\r\n".join(map(json.dumps, rows)).encode()))
    trace = read_trace(path)
    assert trace.arrival_s.tolist() == [1e-6, 2e-6]
    assert trace.prompt_tokens.tolist() == [1, 2]
    assert trace.turn.tolist() == [0, 1]
    assert prefix(trace, 0, 1) == 2
    assert "1 rows with an empty prompt were dropped" in trace.notes
    assert any("words and punctuation" in note for note in trace.notes)


# Chats


def chat(*messages, **more):
    named = [{"role": role, "content": content} for role, content in messages]
    return {"messages": named, **more}


def test_a_follow_up_turn_holds_the_turn_before(tmp_path):
    rows = [
        chat(("user", "Hello there!"), ("assistant", "Hi, how are you?"), timestamp=10),
        chat(
            ("user", "Hello there!"),
            ("assistant", "Hi, how are you?"),
            ("user", "Fine."),
            timestamp="12.5",
            max_tokens=7,
        ),
        chat(("user", "Another one"), timestamp=11),
    ]
    trace = read_trace(written(tmp_path, rows))
    # A role is 5 pieces (< | name | >), in front of each message and of the answer.
    assert trace.prompt_tokens.tolist() == [5 + 3 + 5, 5 + 2 + 5, 5 + 3 + 5 + 6 + 5 + 2 + 5]
    assert trace.output_tokens.tolist() == [6, 0, 7]
    assert trace.arrival_s.tolist() == [10.0, 11.0, 12.5]
    assert prefix(trace, 0, 2) == 13 + 6
    assert trace.session.tolist() == [0, 1, 0]
    assert trace.turn.tolist() == [0, 0, 1]
    assert repeated_tokens(trace).tolist() == [0, 5, 19]
    assert "1 outputs are not known: taken to be as long as max_tokens" in trace.notes
    assert any(note.startswith("sessions were recognised") for note in trace.notes)


def test_batch_lines_with_answers_of_each_shape(tmp_path):
    answer = {"choices": [{"message": {"role": "assistant", "content": "one two"}}]}
    body = {"model": "m", "user": "u1", "messages": [{"role": "user", "content": "x"}]}
    rows = [
        {"custom_id": "1", "body": body, "response": {"status_code": 200, "body": answer}},
        {"custom_id": "2", "body": body, "response": "one two"},
        {"custom_id": "3", "body": body, "choices": [{"text": "one two"}]},
        {"custom_id": "4", "body": body, "usage": {"completion_tokens": 2}},
        {"custom_id": "5", "body": body | {"messages": [*body["messages"], {"role": "assistant",
          "content": "one two"}]}},
    ]  # fmt: skip
    trace = read_trace(written(tmp_path, rows))
    assert trace.output_tokens.tolist() == [2] * 5
    assert trace.session.tolist() == [0] * 5
    assert trace.turn.tolist() == [0, 1, 2, 3, 4]
    assert np.isnan(trace.arrival_s).all()


def test_prompts_tools_salts_and_parts(tmp_path):
    image = {"type": "image_url", "image_url": {"url": "http://x/y.png"}}
    text = {"type": "text", "text": "look"}
    tools = [{"type": "function", "function": {"name": "f"}}]
    rows = [
        {"prompt": "a b c", "completion": "d"},
        {"prompt": "a b c", "cache_salt": "other", "priority": 3},
        {"messages": [{"role": "user", "content": [text, image]}], "tools": tools},
        {"messages": [{"role": "user", "content": [text]}], "tools": tools},
        {"messages": [{"role": "user", "content": [text]}]},
    ]
    trace = read_trace(written(tmp_path, rows))
    assert trace.prompt_tokens[:2].tolist() == [3, 3]
    assert trace.priority.tolist() == [0, 3, 0, 0, 0]
    assert prefix(trace, 0, 1) == 0
    assert prefix(trace, 2, 3) > prefix(trace, 2, 4) == 0
    assert "1 parts that are no text count by their JSON form" in trace.notes


@pytest.mark.parametrize(
    "time", ["2025-10-16T04:09:12.017385Z", 1760587752.017385, 1760587752017.385, 1760587752017385]
)
def test_clock_times_of_any_unit(tmp_path, time):
    rows = [chat(("user", "x"), created=time), chat(("user", "y"), created=1760587753017385000)]
    assert read_trace(written(tmp_path, rows)).arrival_s.tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"messages": []}, "has neither messages nor a prompt (found messages)"),
        ({"messages": ["x"]}, "has neither messages nor a prompt"),
        (chat(("user", "x"), timestamp="soon"), "timestamp is 'soon', expected a time"),
    ],
)
def test_chat_errors(tmp_path, row, message):
    path = written(tmp_path, [chat(("user", "x")), row])
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    assert str(caught.value).startswith(f"{path}:2: {message}")


def test_broken_json_names_its_line(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text('{"messages": [{"role": "user", "content": "x"}]}\n{"messages": [\n')
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    assert str(caught.value).startswith(f"{path}:2: is no JSON")


# Tokenizers


@pytest.mark.parametrize("value", ["1" * 5000, "[" * 100_000])
def test_a_head_that_json_itself_refuses_is_no_crash(tmp_path, value):
    path = tmp_path / "t.jsonl"
    path.write_text('{"timestamp": 0, "input_length": 5, "output_length": ' + value + "}\n")
    with pytest.raises(TraceError, match=re.escape(str(path))):
        read_trace(path)


def test_a_tokenizer_is_used_and_named(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    model = tokenizers.models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    path = written(tmp_path, [{"prompt": "abba"}, {"prompt": "abab"}])
    trace = read_trace(path, tokenizer=tmp_path / "tokenizer.json")
    assert trace.prompt_tokens.tolist() == [4, 4]
    assert prefix(trace, 0, 1) == 2
    assert "text was tokenised with tokenizer.json" in trace.notes


def test_a_tokenizer_that_is_of_no_use_is_said(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0,1,1\n")
    assert (
        "tok.json was not used: csv holds no text" in read_trace(path, tokenizer="tok.json").notes
    )


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
def test_bytes_that_are_no_text_have_their_line(tmp_path, name):
    rows = {
        "t.csv": [b"arrival_s,prompt_tokens,output_tokens", b"0,1,1", b"1,\xff,1"],
        "t.jsonl": [b'{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": [0]}'] * 2
        + [b'{"timestamp": "\xff"}'],
    }[name]
    path = tmp_path / name
    path.write_bytes(b"\n".join(rows))
    with pytest.raises(TraceError, match=re.escape(f"{path}:3: is no UTF-8 text")):
        read_trace(path)


def test_a_tokenizer_that_cannot_be_used(tmp_path, monkeypatch):
    path = written(tmp_path, [{"prompt": "abba"}])
    with pytest.raises(InputError, match="there is no such tokenizer file"):
        read_trace(path, tokenizer=tmp_path / "none.json")
    with pytest.raises(InputError, match=r"is no tokenizer\.json"):
        read_trace(path, tokenizer=path)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(InputError, match="not installed: pip install"):
        read_trace(path, tokenizer=path)


# AIBrix


def test_aibrix_of_both_spellings(tmp_path):
    rows = [
        {"timestamp": 19, "requests": [
            {"prompt": "a b c", "prompt_length": 101, "output_length": None, "session_id": 0},
            {"prompt": "a b d", "prompt_length": 101, "output_length": 9, "session_id": 1},
        ]},
        {"timestamp": 1019, "requests": [{"Prompt Length": 5, "Output Length": 6}]},
        {"timestamp": 1020, "requests": []},
    ]  # fmt: skip
    trace = read_trace(written(tmp_path, rows))
    assert trace.arrival_s.tolist() == [0.019, 0.019, 1.019]
    assert trace.prompt_tokens.tolist() == [3, 3, 5]
    assert trace.output_tokens.tolist() == [0, 9, 6]
    assert prefix(trace, 0, 1) == 2
