"""Formats that name content by block ids: every quirk in a few lines, and the published counts."""

import gzip
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from simkv.errors import TraceError
from simkv.workload.describe import repeated_tokens
from simkv.workload.load import read_trace
from simkv.workload.trace import Trace

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(*rows: Any, name: str = "trace.jsonl", end: str = "\n", last: bool = True) -> Path:
        text = end.join(row if isinstance(row, str) else json.dumps(row) for row in rows)
        path = tmp_path / name
        data = (text + (end if last else "")).encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write


def tokens_in_common(trace: Trace, left: int, right: int) -> int:
    shared = 0
    for one, other in zip(trace.segments(left), trace.segments(right), strict=False):
        if one[0] != other[0]:
            break
        shared += min(one[1], other[1])
    return shared


def mooncake(time: Any, prompt: int, ids: Any, **more: Any) -> dict[str, Any]:
    return {
        "timestamp": time, "input_length": prompt, "output_length": 5, "hash_ids": ids, **more,
    }  # fmt: skip


class TestMooncake:
    def test_times_are_milliseconds_and_the_last_id_covers_what_remains(self, write):
        trace = read_trace(write(mooncake(3000, 1_100, [0, 1, 2]), mooncake(5999, 600, [0, 9])))
        assert trace.arrival_s.tolist() == [3.0, 5.999]
        assert trace.granularity_tokens == 512
        assert [sum(tokens for _, tokens in trace.segments(row)) for row in (0, 1)] == [1_100, 600]
        assert tokens_in_common(trace, 0, 1) == 512
        assert trace.notes == ()

    def test_exact_multiples_have_no_partial_id(self, write):
        trace = read_trace(write(mooncake(0, 1_024, [0, 1])))
        assert trace.segments(0) == [(0, 1_024)]

    def test_ties_keep_the_order_of_the_file_and_duplicates_stay(self, write):
        rows = [mooncake(0, 7, [3]), mooncake(0, 9, [4]), mooncake(0, 7, [3]), mooncake(0, 7, [3])]
        trace = read_trace(write(*rows))
        assert trace.prompt_tokens.tolist() == [7, 9, 7, 7]
        assert tokens_in_common(trace, 0, 3) == 7

    def test_an_unsorted_file_is_sorted_and_said(self, write):
        trace = read_trace(write(mooncake(9, 7, [3]), mooncake(0, 9, [4])))
        assert trace.prompt_tokens.tolist() == [9, 7]
        assert "1 inversion" in " ".join(trace.notes)

    def test_windows_line_ends_blank_lines_and_no_last_newline(self, write):
        row = mooncake(0, 7, [3])
        assert read_trace(write(row, "", row, end="\r\n", last=False)).num_requests == 2

    def test_compressed_files_are_read(self, write):
        assert read_trace(write(mooncake(0, 7, [3]), name="t.jsonl.gz")).num_requests == 1

    def test_ids_of_different_files_are_different_content(self, write, tmp_path):
        write(mooncake(0, 512, [0]), name="a.jsonl")
        write(mooncake(1, 512, [0]), name="b.jsonl")
        trace = read_trace(tmp_path)
        assert tokens_in_common(trace, 0, 1) == 0
        assert "block ids of different files are different content" in trace.notes

    def test_rows_without_ids_have_no_content(self, write):
        row = {"timestamp": 0, "input_length": 10, "output_length": 1}
        assert read_trace(write(row)).granularity_tokens == 0
        both = read_trace(write(row, mooncake(1, 10, [0])))
        assert both.segments(0) == []
        assert "1 requests name no block ids: content unknown" in both.notes

    def test_fewer_ids_than_blocks_leave_the_rest_to_the_request(self, write):
        trace = read_trace(write(mooncake(0, 1_100, [0, 1]), mooncake(0, 1_100, [0, 1])))
        assert tokens_in_common(trace, 0, 1) == 1_024
        assert "2 requests name fewer block ids" in trace.notes[0]

    def test_ids_that_are_not_chained_are_told_apart_by_prefix(self, write):
        trace = read_trace(write(mooncake(0, 1_024, [1, 7]), mooncake(0, 1_024, [2, 7])))
        assert tokens_in_common(trace, 0, 1) == 0
        assert "block ids are not chained" in trace.notes[0]

    def test_sessions_with_delays(self, write):
        rows = [
            {"session_id": "a", "input_length": 10, "output_length": 1, "hash_ids": [0]},
            {"session_id": "a", "delay": 1500, "input_length": 20, "output_length": 1},
            {"session_id": "b", "timestamp": 7, "input_length": 30, "output_length": 1},
        ]
        trace = read_trace(write(*rows))
        assert trace.prompt_tokens.tolist() == [30, 10, 20]  # unknown arrivals last
        assert trace.session.tolist() == [0, 1, 1]
        assert trace.turn.tolist() == [0, 0, 1]
        assert trace.after.tolist() == [-1, -1, 1]
        assert trace.think_s[2] == 1.5
        assert np.isnan(trace.arrival_s[1:]).all()

    @pytest.mark.parametrize(
        ("row", "message"),
        [
            (mooncake(0, 1_024, [0, 1, 2]), "names 3 block ids for a prompt of 1,024 tokens"),
            (mooncake(0, -5, []), "input_length is -5, expected a whole number, 0 or more"),
            (mooncake(0, 2**63, []), "input_length is 9223372036854775808, expected a whole"),
            (mooncake(10**30, 5, [0]), "timestamp is 1e+30, expected a time"),
            (mooncake(0, 5, [0.5]), "hash_ids: expected a list of whole numbers"),
            (mooncake(0, 5, "0"), "hash_ids: expected a list of whole numbers, got str"),
            (mooncake("noon", 5, [0]), "timestamp is 'noon', expected a time"),
            ({"timestamp": 1, "input_length": 5}, "output_length is missing"),
            ("[1]", "expected a JSON object, got list"),
            ('{"timestamp"', "is no JSON"),
        ],
    )
    def test_a_wrong_row_is_named_by_its_line(self, write, row, message):
        path = write(mooncake(0, 7, [0]), row)
        with pytest.raises(TraceError) as caught:
            read_trace(path)
        assert str(caught.value).startswith(f"{path}:2: ")
        assert message in str(caught.value)

    def test_the_conversation_trace(self, shared):
        trace = read_trace(shared("data", "traces", "mooncake", "conversation_trace.jsonl"))
        assert trace.num_requests == 12_031
        assert len(np.unique(trace.arrival_s)) == 1_180
        assert int(trace.prompt_tokens.max()) == 126_195
        assert int(trace.output_tokens.min()) == 1
        # Every prompt is covered to its last token, and starts with the one shared block.
        assert int(trace.segment_tokens.sum()) == int(trace.prompt_tokens.sum())
        assert len(set(trace.segment_id[trace.segment_offset[:-1]].tolist())) == 1
        assert int(repeated_tokens(trace).sum()) == 54_098_411
        assert trace.notes == ()


def weka(*requests: Any, **more: Any) -> dict[str, Any]:
    return {
        "id": "t", "models": ["m"], "block_size": 64, "hash_id_scope": "local", "tool_tokens": 1,
        "system_tokens": 1, "requests": list(requests), **more,
    }  # fmt: skip


def step(time: float, prompt: int, ids: list[int], **more: Any) -> dict[str, Any]:
    return {
        "t": time, "type": "n", "model": "m", "in": prompt, "out": 3, "hash_ids": ids, **more,
    }  # fmt: skip


class TestWeka:
    def test_ids_stand_for_full_blocks_and_the_rest_is_nobodys(self, write):
        session = weka(step(0, 130, [1, 2]), step(4, 191, [1, 2]), step(5, 64, [1]))
        trace = read_trace(write(session, name="a.json"))
        assert trace.granularity_tokens == 64
        assert [trace.segments(row) for row in range(3)] == [[(0, 128)], [(0, 128)], [(0, 64)]]

    def test_ids_never_match_across_sessions(self, write, tmp_path):
        write(weka(step(0, 64, [1])), name="b.json.gz")
        write(weka(step(0, 65, [1])), name="a.json")
        trace = read_trace(tmp_path)
        assert trace.prompt_tokens.tolist() == [65, 64]  # files in the order of their names
        assert trace.session.tolist() == [0, 1]
        assert tokens_in_common(trace, 0, 1) == 0

    def test_a_global_scope_matches_across_sessions(self, write):
        sessions = [weka(step(0, 64, [1]), hash_id_scope="global") for _ in range(2)]
        trace = read_trace(write(*sessions, name="a.jsonl"))
        assert trace.session.tolist() == [0, 1]
        assert tokens_in_common(trace, 0, 1) == 64

    def test_a_session_may_span_lines(self, write):
        text = json.dumps(weka(step(0, 64, [1]), step(1, 64, [1])), indent=1)
        trace = read_trace(write(text, name="a.json", end="\r\n"))
        assert trace.session.tolist() == [0, 0]

    def test_sub_agents_count_from_their_own_start_and_share_the_ids(self, write):
        session = weka(
            step(0, 128, [1, 2], api_time=4.0),
            {
                "t": 10.5, "type": "subagent", "agent_id": "x", "duration_ms": 5, "models": ["m"],
                "requests": [step(0, 64, [1], api_time=1, think_time=0), step(2, 64, [1])],
            },
            step(12, 192, [1, 2, 3], think_time=8.0),
            name_of_nothing=1,
        )  # fmt: skip
        trace = read_trace(write(session, name="a.json"))
        assert trace.arrival_s.tolist() == [0.0, 10.5, 12.5, 12.0]  # rows stay in file order
        assert trace.after.tolist() == [-1, 0, 1, 0]
        assert math.isnan(trace.think_s[0])
        # As stated, or else from the end of the request before.
        assert trace.think_s[1:].tolist() == [6.5, 1.0, 8.0]
        assert trace.turn.tolist() == [0, 1, 2, 3]
        assert tokens_in_common(trace, 1, 3) == 64
        assert any("1 sub-agents" in note for note in trace.notes)

    def test_a_request_with_no_output_stays_and_one_with_no_prompt_goes(self, write):
        session = weka(step(0, 64, [1], out=0), step(1, 0, []), step(2, 64, [1]))
        trace = read_trace(write(session, name="a.json"))
        assert trace.output_tokens.tolist() == [0, 3]
        assert trace.after.tolist() == [-1, 0]
        assert "1 requests have no output token" in trace.notes
        assert "1 rows with an empty prompt were dropped" in trace.notes

    @pytest.mark.parametrize(
        ("session", "message"),
        [
            (weka(step(0, 64, [1, 2])), "requests[0]: names 2 block ids for 64 tokens, expected 1"),
            (weka(step(0, 2**63, [])), "requests[0]: in is 9223372036854775808, expected a whole"),
            (weka(step(0, -1, [])), "requests[0]: in is -1, expected a whole number, 0 or more"),
            (weka(step("x", 1, [])), "requests[0]: t is 'x', expected seconds"),
            (weka(5), "requests[0] is no JSON object"),
            (weka(requests=None), "requests is NoneType, expected a list"),
            (weka(block_size=0), "block_size is 0, expected 1 or more"),
            (weka(hash_id_scope="all"), "hash_id_scope is 'all', expected 'local' or 'global'"),
            (
                weka({"type": "subagent", "t": 0, "requests": [step(0, 5, [1.5])]}),
                "requests[0]: requests[0]: expected a list of whole numbers",
            ),
            (weka(step(0, 0, [])), "holds no request with a prompt"),
        ],
    )
    def test_what_is_wrong_is_said(self, write, session, message):
        path = write(session, name="a.json")
        with pytest.raises(TraceError) as caught:
            read_trace(path)
        assert str(path) in str(caught.value)
        assert message in str(caught.value)

    def test_sessions_of_different_block_sizes_do_not_mix(self, write):
        path = write(weka(step(0, 64, [1])), weka(step(0, 16, [1]), block_size=16))
        with pytest.raises(TraceError, match="block_size is 16, expected 64"):
            read_trace(path)

    def test_broken_json_and_broken_gzip_are_said(self, write, tmp_path):
        path = write(weka(step(0, 64, [1])), '{"id": ', name="a.jsonl")
        with pytest.raises(TraceError, match=r"a\.jsonl:2: is no JSON"):
            read_trace(path)
        whole = gzip.compress(json.dumps(weka(*[step(0, 64, [1])] * 9_000)).encode())
        (tmp_path / "b.json.gz").write_bytes(whole[: len(whole) - 20])
        with pytest.raises(TraceError, match="is no whole gzip file"):
            read_trace(tmp_path / "b.json.gz")

    def test_the_published_sessions(self, shared):
        trace = read_trace(shared("data", "traces", "weka-agentic"))
        assert trace.num_requests == 11_607
        assert int(trace.session.max()) + 1 == 147
        assert int((trace.output_tokens == 0).sum()) == 7
        covered = trace.prompt_tokens // 64 * 64
        assert int(trace.segment_tokens.sum()) == int(covered.sum()) == 19_731_216 * 64
        # A session's stated totals are what its rows sum to.
        folder = shared("data", "traces", "weka-agentic")
        for number, path in enumerate(sorted(folder.iterdir())[:20]):
            data = path.read_bytes()
            session = orjson.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
            totals = session["totals"]["combined_tokens"]
            mine = trace.session == number
            assert int(trace.prompt_tokens[mine].sum()) == totals["input"]
            assert int(trace.output_tokens[mine].sum()) == totals["output"]


def chat(number: int, parent: int, time: float, prompt: int, ids: list[int]) -> dict[str, Any]:
    return {
        "chat_id": number, "parent_chat_id": parent, "timestamp": time, "input_length": prompt,
        "output_length": 2, "type": "text", "turn": 1, "hash_ids": ids,
    }  # fmt: skip


class TestQwenBailian:
    def test_the_quoted_first_line(self, write):
        trace = read_trace(write(chat(0, -1, 0.0, 502, list(range(32)))))
        assert trace.granularity_tokens == 16
        assert trace.segments(0) == [(0, 502)]

    def test_a_session_is_a_tree_of_chats(self, write):
        rows = [
            chat(7, -1, 0.5, 20, [0, 1]),
            chat(8, -1, 0.75, 20, [0, 2]),
            chat(9, 7, 61.114, 40, [0, 3, 4]),
            chat(10, 9, 70.0, 40, [0, 3, 4]),
            chat(11, 9, 71.0, 40, [0, 3, 5]),
            chat(12, 99, 72.0, 16, [0]),
        ]
        trace = read_trace(write(*rows))
        assert trace.arrival_s[2] == 61.114
        assert trace.session.tolist() == [0, 1, 0, 0, 0, 2]
        assert trace.turn.tolist() == [0, 0, 1, 2, 3, 0]
        assert trace.after.tolist() == [-1, -1, 0, 2, 2, -1]
        assert tokens_in_common(trace, 0, 2) == 16  # the padded last block has changed
        assert "1 requests follow a chat that the file does not hold before them" in trace.notes

    def test_a_chat_is_called_by_a_number_or_a_text(self, write):
        for row, name in ((chat([1], -1, 0, 16, [0]), "chat_id"),
                          (chat(1, {}, 0, 16, [0]), "parent_chat_id")):  # fmt: skip
            path = write(row)
            with pytest.raises(TraceError, match=f"{name} is .*, expected a number or a text"):
                read_trace(path)


class TestServeGenOffline:
    def test_batch_jobs_have_no_times_and_no_outputs(self, write):
        row = {
            "request_id": 0,
            "type": "text",
            "input_length": 20,
            "hash_ids": [0, 1],
            "img_ids": [],
        }
        trace = read_trace(write(row, row))
        assert trace.granularity_tokens == 16
        assert np.isnan(trace.arrival_s).all()
        assert trace.output_tokens.tolist() == [0, 0]
        assert tokens_in_common(trace, 0, 1) == 20
        assert any("no output length" in note for note in trace.notes)
        assert "the trace knows no arrival times" in trace.notes

    def test_ids_are_common_to_the_files_of_a_folder(self, write, tmp_path):
        row = {"request_id": 0, "type": "text", "input_length": 16, "hash_ids": [0], "img_ids": []}
        write(row, name="a.jsonl")
        write(row, name="b.jsonl")
        assert tokens_in_common(read_trace(tmp_path), 0, 1) == 16

    def test_the_other_variant_has_outputs_and_no_content(self, write):
        row = {
            "request_id": 0, "type": "text", "input_length": 20, "output_length": 4,
            "duration(ms)": 12,
        }  # fmt: skip
        trace = read_trace(write(row))
        assert trace.output_tokens.tolist() == [4]
        assert trace.granularity_tokens == 0
        assert trace.notes == ("the trace knows no arrival times",)

    def test_the_published_head(self, shared):
        trace = read_trace(shared("data", "traces", "servegen", "offline"))
        assert trace.num_requests == 93
        assert int(trace.prompt_tokens.sum()) == 30_987
        assert int(repeated_tokens(trace).sum()) == 14_720
