"""CSV formats: the publishers' files, and each quirk in a few lines."""

import gzip

import numpy as np
import pytest

from simkv.errors import TraceError
from simkv.workload.load import read_trace

AZURE = "data", "traces", "azure-2023", "AzureLLMInferenceTrace_conv.csv"


def written(tmp_path, text, name="trace.csv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def refusal(path, **options):
    with pytest.raises(TraceError) as caught:
        read_trace(path, **options)
    assert str(caught.value).startswith(str(path))
    return str(caught.value).removeprefix(str(path))


def test_azure_2023_whole_file(shared):
    trace = read_trace(shared(*AZURE))
    assert trace.num_requests == 19_366
    assert trace.arrival_s[[0, 1, -1]].tolist() == [0.0, 4.314579, 3501.721937]
    assert trace.prompt_tokens.sum() == 22_361_870
    assert trace.output_tokens.sum() == 4_088_665
    assert (np.diff(trace.arrival_s) > 0).all()
    assert trace.notes == ()


def test_azure_crlf_and_no_final_newline(tmp_path):
    text = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
        "2023-11-16 18:15:46.6805900,374,44\r\n"
        "2023-11-16 18:15:50.9951690,396,109"
    )
    trace = read_trace(written(tmp_path, text))
    assert trace.arrival_s.tolist() == [0.0, 4.314579]
    assert trace.prompt_tokens.tolist() == [374, 396]
    assert trace.output_tokens.tolist() == [44, 109]


def test_azure_100_ns_ticks_are_kept(tmp_path):
    text = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805901,1,1\n2023-11-16 18:15:46.6805903,1,1\n"
    )
    assert read_trace(written(tmp_path, text)).arrival_s.tolist() == [0.0, 2e-7]


def test_azure_2024_mixes_rows_with_and_without_a_fraction(tmp_path):
    text = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2024-05-11 23:59:59.999000+00:00,1452,3\n"
        "2024-05-12 00:00:00+00:00,584,3\n"
        "2024-05-12 00:00:00.001163+00:00,862,38\n"
    )
    assert read_trace(written(tmp_path, text)).arrival_s.tolist() == [0.0, 0.001, 0.002163]


@pytest.mark.parametrize(
    ("name", "prompts", "span_s"),
    [
        ("AzureLLMInferenceTrace_code_1week.10rows.csv", [2162, 2399], 604799.919571),
        ("AzureLLMInferenceTrace_conv_1week.10rows.csv", [1452, 584], 604799.994297),
    ],
)
def test_azure_2024_rows(shared, name, prompts, span_s):
    trace = read_trace(shared("data", "traces", "azure-2024", name))
    assert trace.num_requests == 10
    assert trace.prompt_tokens[:2].tolist() == prompts
    assert trace.arrival_s[-1] == span_s


def test_azure_2025_has_images_and_z(shared):
    name = "AzureLMMInferenceTrace_multimodal.10rows.csv"
    trace = read_trace(shared("data", "traces", "azure-2025-lmm", name))
    assert trace.arrival_s[:3].tolist() == [0.0, 5.55, 6.244]
    assert trace.prompt_tokens[:2].tolist() == [770, 949]
    assert any("images" in note for note in trace.notes)


def test_vidur_equals_azure_row_for_row(shared):
    azure = read_trace(shared(*AZURE))
    vidur = read_trace(shared("data", "traces", "vidur", "splitwise_conv.csv"))
    assert np.array_equal(vidur.arrival_s, azure.arrival_s)
    assert np.array_equal(vidur.prompt_tokens, azure.prompt_tokens)
    assert np.array_equal(vidur.output_tokens, azure.output_tokens)


def test_vidur_without_arrivals(shared):
    name = "arxiv_summarization_stats_llama2_tokenizer_filtered_v2.csv"
    trace = read_trace(shared("data", "traces", "vidur", name))
    assert trace.num_requests == 28_257
    assert np.isnan(trace.arrival_s).all()
    assert (trace.prompt_tokens[0], trace.output_tokens[0]) == (3772, 54)
    assert "the trace knows no arrival times" in trace.notes


def test_vidur_ratio_of_either_direction_is_not_read(tmp_path):
    text = "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n10,20,30,2.0\n"
    trace = read_trace(written(tmp_path, text))
    assert (trace.prompt_tokens[0], trace.output_tokens[0]) == (10, 20)


BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"


def test_burstgpt_first_release(tmp_path):
    text = (
        f"{BURST}\n5,ChatGPT,472,18,490,Conversation log\n"
        "45,ChatGPT,1087,230,1317,Conversation log\n60,ChatGPT,300,0,300,API log\n"
        "118,GPT-4,417,276,693,Conversation log\n"
    )
    trace = read_trace(written(tmp_path, text))
    assert trace.arrival_s.tolist() == [5.0, 45.0, 118.0]
    assert trace.output_tokens.tolist() == [18, 230, 276]
    assert trace.tenant.tolist() == [0, 0, 1]
    assert "1 failed requests (no response token) were dropped" in trace.notes
    assert "the tenant is the model: 0 is ChatGPT, 1 is GPT-4" in trace.notes


def test_burstgpt_sessions_of_the_newer_release(tmp_path):
    text = (
        f"{BURST},Session ID,Elapsed time\n"
        "5.5,ChatGPT,10,1,11,Conversation log,a,3.1\n6,GPT-4,20,1,21,API log,,2\n"
        "7,ChatGPT,30,1,31,Conversation log,a,1\n"
    )
    trace = read_trace(written(tmp_path, text))
    assert trace.session.tolist() == [0, -1, 0]
    assert trace.turn.tolist() == [0, 0, 1]
    assert trace.after.tolist() == [-1, -1, 0]


def test_a_failure_does_not_shift_the_lines_of_errors(tmp_path):
    text = f"{BURST}\n5,ChatGPT,1,0,1,API log\n6,ChatGPT,-2,1,1,API log\n"
    assert refusal(written(tmp_path, text)).startswith(":3: prompt length is -2 tokens")


def test_plain_with_all_columns(tmp_path):
    text = (
        "session,turn,arrival_s,prompt_tokens,output_tokens,tenant,priority,think_s\n"
        "x,0,0.5,10,5,blue,2,\nx,1,,30,5,blue,2,1.5\ny,0,0.25,7,0,red,0,\n"
    )
    trace = read_trace(written(tmp_path, text))
    assert trace.prompt_tokens.tolist() == [7, 10, 30]
    assert trace.arrival_s[:2].tolist() == [0.25, 0.5]
    assert np.isnan(trace.arrival_s[2])
    assert trace.session.tolist() == [0, 1, 1]
    assert trace.after.tolist() == [-1, -1, 1]
    assert trace.think_s[2] == 1.5
    assert trace.tenant.tolist() == [1, 0, 0]
    assert trace.priority.tolist() == [0, 2, 2]
    assert "1 requests have no output token" in trace.notes


@pytest.mark.parametrize(
    "times", [("1760587752.5", "1760587753"), ("2024-05-12T00:00:00.5Z", "2024-05-12 00:00:01")]
)
def test_plain_timestamps_are_numbers_or_date_times(tmp_path, times):
    text = f"timestamp,input_tokens,completion_tokens,colour\n{times[0]},1,2,r\n{times[1]},3,4,g\n"
    trace = read_trace(written(tmp_path, text))
    assert trace.arrival_s.tolist() == [0.0, 0.5]
    assert "columns not read: colour" in trace.notes


def test_a_column_that_only_resembles_one_that_is_there_is_passed_by(tmp_path):
    text = "arrival_s,arrival_ms,prompt_tokens,output_tokens,total_tokens\n1,1000,2,3,5\n"
    assert "columns not read: arrival_ms, total_tokens" in read_trace(written(tmp_path, text)).notes


def test_ties_keep_the_order_of_the_file_and_the_rest_is_sorted(tmp_path):
    text = "arrival_s,prompt_tokens,output_tokens\n3,1,1\n0,2,1\n3,3,1\n0,4,1\n"
    trace = read_trace(written(tmp_path, text))
    assert trace.prompt_tokens.tolist() == [2, 4, 1, 3]
    assert "rows were sorted by arrival (2 inversions)" in trace.notes


def test_duplicate_rows_stay(tmp_path):
    text = "arrival_s,prompt_tokens,output_tokens\n1,5,6\n1,5,6\n"
    assert read_trace(written(tmp_path, text)).num_requests == 2


def test_empty_prompts_are_dropped_and_counted(tmp_path):
    text = "arrival_s,prompt_tokens,output_tokens\n1,0,6\n2,5,6\n"
    trace = read_trace(written(tmp_path, text))
    assert trace.prompt_tokens.tolist() == [5]
    assert "1 rows with an empty prompt were dropped" in trace.notes


def test_whole_numbers_may_be_written_as_floats(tmp_path):
    text = "prompt_tokens,output_tokens\n374.0,44.0\n"
    assert read_trace(written(tmp_path, text)).prompt_tokens.tolist() == [374]


def test_gzip_byte_order_mark_quotes_and_blank_lines(tmp_path):
    text = '\ufeff"prompt_tokens","output_tokens"\r\n\r\n"7","8"\r\n\r\n'
    path = written(tmp_path, gzip.compress(text.encode()), "trace.csv.gz")
    trace = read_trace(path)
    assert trace.prompt_tokens.tolist() == [7]
    assert trace.name == "trace"


def test_a_folder_is_one_trace_in_order_of_names(tmp_path):
    header = "arrival_s,prompt_tokens,output_tokens\n"
    written(tmp_path, header + "0,1,1\n5,2,1\n", "b.csv")
    written(tmp_path, header + "0,3,1\n", "a.csv")
    written(tmp_path, "", "c.csv")
    written(tmp_path, "about", "README.md")
    trace = read_trace(tmp_path)
    assert trace.prompt_tokens.tolist() == [3, 1, 2]
    assert trace.name == tmp_path.name
    assert "empty files were skipped: c.csv" in trace.notes
    assert "no trace files, passed by: README.md" in trace.notes


PLAIN = "arrival_s,prompt_tokens,output_tokens\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PLAIN + "0,1,1\n1,-5,1\n", ":3: prompt length is -5 tokens, expected 0 or more"),
        (PLAIN + "0,1,1\n\n1,5,-1\n", ":4: output length is -1 tokens, expected 0 or more"),
        (
            PLAIN + "0,1,1\n1,many,1\n",
            ":3: column prompt_tokens holds 'many', expected a whole number",
        ),
        (PLAIN + "0,1,1\n1,1.5,1\n", ":3: column prompt_tokens holds '1.5', expected a whole"),
        (PLAIN + "0,1,1\nnoon,1,1\n", ":3: column arrival_s holds 'noon', expected a time"),
        (PLAIN + "0,1,1\n1,1\n", ":3: row has 2 cells, expected 3"),
        (
            PLAIN + "0,1,1\n1,1e30,1\n",
            ":3: column prompt_tokens holds '1e30', expected a whole number",
        ),
        (
            PLAIN + "0,1,1\n1,9223372036854775807,1\n",
            ":3: prompt length is 9,223,372,036,854,775,807 tokens, expected at most 1,000,000,000",
        ),
        (PLAIN + "0,1,1\n1e300,1,1\n", ":3: column arrival_s holds '1e300', expected a time"),
        (PLAIN, ": holds no request with a prompt"),
        (
            "arrival_s,prompt_tokens\n0,1\n",
            ":1: has no column for output tokens; found arrival_s, prompt_tokens, expected one of "
            "output_tokens, completion_tokens, output_length",
        ),
        (
            "arrival_sec,prompt_tokens,output_tokens\n0,1,1\n",
            ":1: column 'arrival_sec' is not known; did you mean 'arrival_s'?",
        ),
        (
            "session,turn,prompt_tokens,output_tokens\na,1,1,1\nb,1,1,1\na,1,2,2\n",
            ":4: turn 1 arrives after turn 1 of its session",
        ),
    ],
)
def test_errors_name_the_place_and_what_was_expected(tmp_path, text, message):
    assert refusal(written(tmp_path, text)).startswith(message)


def test_a_later_file_without_the_column_is_refused(tmp_path):
    written(tmp_path, PLAIN + "0,1,1\n", "a.csv")
    other = written(tmp_path, "x,y\n0,1\n", "b.csv")
    with pytest.raises(TraceError, match=r"has no column prompt_tokens, .* found x, y") as caught:
        read_trace(tmp_path)
    assert caught.value.file == other


def test_the_named_format_is_used_even_where_another_is_recognised(tmp_path):
    path = written(tmp_path, PLAIN + "0,1,1\n")
    message = refusal(path, format="azure")
    assert message.startswith(":1: has no column TIMESTAMP, ContextTokens, GeneratedTokens; found")


def test_chunks_join_and_errors_far_down_have_their_line(tmp_path, monkeypatch):
    monkeypatch.setattr("simkv.workload.readers.table._CHUNK_BYTES", 64)
    rows = [f"{at},{at + 1},1" for at in range(200)]
    trace = read_trace(written(tmp_path, PLAIN + "\n".join(rows)))
    assert trace.prompt_tokens.tolist() == list(range(1, 201))
    rows[150] = "150,x,1"
    message = refusal(written(tmp_path, PLAIN + "\n".join(rows)))
    assert message.startswith(":152: column prompt_tokens holds 'x'")
