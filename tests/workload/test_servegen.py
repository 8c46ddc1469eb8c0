import gzip
import json
import math

import numpy as np
import pytest

from simkv.errors import ConfigError, TraceError
from simkv.workload.clients import read_clients
from simkv.workload.load import read_trace
from simkv.workload.readers.format import ReadOptions, read_head
from simkv.workload.readers.servegen_clients import SERVEGEN_CLIENTS
from simkv.workload.servegen import ServeGen, generate

LENGTHS = {"input_tokens": "{10: 0.25, 20: 0.75}", "output_tokens": "{1: 0.5, 3.0: 0.5}"}


def write_client(folder, number, windows, datasets, *, packed=False):
    rows = "".join(",".join(map(str, window)) + "\r\n" for window in windows)
    (folder / f"chunk-{number}-trace.csv").write_bytes(rows.encode())
    data = json.dumps(datasets).encode()
    name = f"chunk-{number}-dataset.json"
    if packed:
        (folder / f"{name}.gz").write_bytes(gzip.compress(data))
    else:
        (folder / name).write_bytes(data)


@pytest.fixture
def folder(tmp_path):
    idle = (600, 0, 0, "", 0, 0)
    write_client(tmp_path, 10, [(0, 2.0, 1, "Gamma", 1, 1), idle], {"0": LENGTHS}, packed=True)
    write_client(tmp_path, 9, [(0, 0, 0, "", 0, 0), (600, 0.5, 1, "Weibull", 1, 1)], {
        "0": {"input_tokens": "{}", "output_tokens": "{}"},
        "600": {**LENGTHS, "reason_ratio": "{0.0: 0.5, 0.5: 0.5}"},
    })  # fmt: skip
    return tmp_path


def whole(folder, **given):
    return ServeGen(path=str(folder), **{"duration_s": None, **given})


def test_a_folder_becomes_the_requests_of_all_its_clients(folder):
    trace = generate(whole(folder), seed=1)
    assert np.bincount(trace.tenant, minlength=11)[[9, 10]].tolist() == [300, 1200]
    assert trace.arrival_s[trace.tenant == 10].max() < 600  # idle in its second window
    assert trace.arrival_s[trace.tenant == 9].min() >= 600
    assert (np.diff(trace.arrival_s) >= 0).all()
    assert set(trace.prompt_tokens.tolist()) == {10, 20}
    assert set(trace.output_tokens.tolist()) == {1, 3}
    assert trace.granularity_tokens == 0
    assert trace.notes == ("generated from 2 ServeGen clients with seed 1",)
    assert trace.prompt_tokens.mean() == pytest.approx(17.5, abs=4 * 4.33 / math.sqrt(1500))


def test_a_part_of_the_days_is_moved_to_zero_and_scaled(folder):
    trace = generate(whole(folder, start_s=300.0, duration_s=600.0, rate_scale=4.0), seed=1)
    early = trace.arrival_s < 300.0
    assert (trace.tenant[early] == 10).all()
    assert (trace.tenant[~early] == 9).all()
    assert early.sum() == pytest.approx(2400, abs=4 * math.sqrt(2400))
    assert (~early).sum() == pytest.approx(600, abs=4 * math.sqrt(600))
    assert trace.arrival_s.min() >= 0
    assert trace.arrival_s.max() < 600


@pytest.mark.parametrize(("law", "shape", "cv"), [("Gamma", 0.25, 2.0), ("Weibull", 0.5, 5**0.5)])
def test_gaps_have_the_cv_of_their_law_and_the_rate_of_the_window(tmp_path, law, shape, cv):
    # The fitted scale is far from 1/rate, as in many windows of the release: the rate holds.
    windows = [(600 * at, 5.0, cv, law, shape, 1e-3) for at in range(40)]
    write_client(tmp_path, 1, windows, {"0": LENGTHS})
    trace = generate(whole(tmp_path), seed=1)
    counts = np.bincount((trace.arrival_s // 600).astype(int))
    assert (counts == 3000).all()
    gaps = np.diff(trace.arrival_s)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.03)


def test_a_fraction_of_a_request_is_rounded_up_as_often_as_it_says(tmp_path):
    windows = [(600 * at, 0.25 / 600, 1, "Gamma", 1, 1) for at in range(4000)]
    write_client(tmp_path, 1, windows, {"0": LENGTHS})
    trace = generate(whole(tmp_path), seed=1)
    assert trace.num_requests == pytest.approx(1000, abs=4 * math.sqrt(750))


def test_a_multimodal_prompt_is_its_text_and_each_of_its_parts(tmp_path):
    fields = {
        "text_tokens": "{100: 1.0}",
        "image_tokens": "{1000: 0.5, 3000: 0.5}",
        "image_count": "{0: 0.5, 2: 0.5}",
        "audio_tokens": "{0: 1.0}",
        "audio_count": "{0: 1.0}",
        "video_tokens": "{7: 1.0}",
        "video_count": "{1: 1.0}",
        "output_tokens": "{5: 1.0}",
    }
    write_client(tmp_path, 3, [(0, 10.0, 1, "Gamma", 1, 1)], {"0": fields})
    trace = generate(whole(tmp_path), seed=1)
    sizes, counts = np.unique(trace.prompt_tokens, return_counts=True)
    assert sizes.tolist() == [107, 2107, 4107, 6107]
    assert counts / 6000 == pytest.approx([1 / 2, 1 / 8, 1 / 4, 1 / 8], abs=4 * 0.5 / 6000**0.5)


def test_an_idle_window_of_lengths_falls_back_to_the_one_before(tmp_path):
    other = {"input_tokens": "{99: 1.0}", "output_tokens": "{1: 1.0}"}
    empty = {"input_tokens": "{}", "output_tokens": "{}"}
    windows = [(600 * at, 1.0, 1, "Gamma", 1, 1) for at in range(3)]
    write_client(tmp_path, 1, windows, {"0": empty, "600": other, "1200": empty})
    trace = generate(whole(tmp_path), seed=1)
    assert set(trace.prompt_tokens.tolist()) == {99}


def test_reading_the_folder_means_generating(folder):
    trace = read_trace(folder, seed=0)
    assert trace.num_requests == 1500
    assert "generated from 2 ServeGen clients with seed 0" in trace.notes
    assert read_trace(folder / "chunk-10-trace.csv").num_requests == 1200
    assert all(SERVEGEN_CLIENTS.recognise(read_head(path)) for path in folder.iterdir())


def test_reading_stops_at_a_million_requests_and_says_so(tmp_path):
    windows = [(600 * at, 1000.0, 1, "Gamma", 1, 1) for at in range(3)]
    write_client(tmp_path, 1, windows, {"0": LENGTHS})
    trace = SERVEGEN_CLIENTS.read(sorted(tmp_path.iterdir()), ReadOptions())
    assert trace.num_requests == 600_000
    assert "only the first 600 s of 1,800 s were generated" in trace.notes[1]


def test_the_same_seed_gives_the_same_trace_and_clients_are_independent(folder):
    one, again, other = (generate(whole(folder), seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(one.arrival_s, again.arrival_s)
    assert not np.array_equal(one.arrival_s, other.arrival_s)
    (folder / "chunk-9-trace.csv").unlink()
    alone = generate(whole(folder), seed=1)
    assert np.array_equal(alone.arrival_s, one.arrival_s[one.tenant == 10])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("600,1,1,Gamma,1", "chunk-10-trace.csv:2: expected 6 columns"),
        ("600,x,1,Gamma,1,1", "chunk-10-trace.csv:2: expected numbers"),
        ("600,-1,1,Gamma,1,1", "chunk-10-trace.csv:2: expected a rate of 0 or more"),
        ("600,1,1,Gamma,0,1", "chunk-10-trace.csv:2: expected a rate of 0 or more and a shape"),
        ("600,1,1,Pareto,1,1", "chunk-10-trace.csv:2: expected Gamma, Weibull or nothing"),
        ("600,1,1,,0,0", "chunk-10-trace.csv:2: has a rate of 1 and no law"),
        ("0,1,1,Gamma,1,1", "chunk-10-trace.csv:2: window starts before the one above"),
    ],
)
def test_a_bad_window_is_named_with_its_line(folder, row, message):
    (folder / "chunk-10-trace.csv").write_text(f"0,1,1,Gamma,1,1\n{row}\n")
    with pytest.raises(TraceError, match=message):
        read_clients(folder)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("[1]", "is no ServeGen dataset"),
        ("{", "is no ServeGen dataset"),
        ('{"x": {}}', "is no ServeGen dataset"),
        ('{"0": {"input_tokens": "{1: 1.0}"}}', "expected output_tokens and input_tokens or"),
        ('{"0": {"input_tokens": "open(1)"}}', "is no ServeGen dataset"),
        ('{"0": {"input_tokens": "{1: "}}', "input_tokens is no dict literal"),
        ('{"0": {"input_tokens": "{-1: 1.0}"}}', "input_tokens has a negative length"),
        ("{}", "has no histogram, though the client sends requests"),
    ],
)
def test_a_bad_dataset_is_named(tmp_path, data, message):
    write_client(tmp_path, 1, [(0, 1.0, 1, "Gamma", 1, 1)], {})
    (tmp_path / "chunk-1-dataset.json").write_text(data)
    with pytest.raises(TraceError, match=f"chunk-1-dataset.json: .*{message}"):
        read_clients(tmp_path)


def test_what_is_missing_is_named(folder, tmp_path):
    with pytest.raises(TraceError, match="expected a folder with files chunk-N"):
        read_clients(tmp_path / "nowhere")
    (folder / "chunk-10-dataset.json.gz").unlink()
    with pytest.raises(TraceError, match=r"has no chunk-10-dataset.json \(or .gz\) beside it"):
        read_clients(folder)


def test_a_silent_part_is_an_error(folder):
    with pytest.raises(TraceError, match="no client sends anything from 5000 s"):
        generate(whole(folder, start_s=5000.0), seed=1)


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({"path": ""}, "workload.path"),
        ({"path": "x", "start_s": -1.0}, "workload.start_s"),
        ({"path": "x", "duration_s": 0.0}, "workload.duration_s"),
        ({"path": "x", "rate_scale": 0.0}, "workload.rate_scale"),
    ],
)
def test_values_out_of_range_name_their_path(given, path):
    with pytest.raises(ConfigError) as caught:
        ServeGen(**given)
    assert caught.value.path == path


def test_a_flood_is_refused_before_it_is_drawn(folder):
    with pytest.raises(ConfigError, match="expected at most 50,000,000"):
        generate(whole(folder, rate_scale=1e6), seed=1)


@pytest.mark.parametrize("model", ["reason/deepseek-r1", "multimodal/mm-image"])
def test_the_release_is_met_in_rates_and_lengths(shared, model):
    folder = shared("data", "traces", "servegen", *model.split("/"))
    trace = generate(whole(folder), seed=1)
    for client in read_clients(folder):
        mine = trace.tenant == client.number
        windows = (trace.arrival_s[mine] // 600).astype(int)
        counts = np.bincount(windows, minlength=len(client.window_s))
        assert np.abs(counts - client.rate_per_s * 600).max() < 1
        for start_s, fields in client.lengths.items():
            inside = (windows * 600 >= start_s) & (windows * 600 < start_s + 21600)
            if not inside.any():
                continue
            for name, column in (
                ("input_tokens", trace.prompt_tokens),
                ("output_tokens", trace.output_tokens),
            ):
                if name not in fields:
                    continue  # a multimodal prompt has its own test
                law = fields[name]
                spread = math.sqrt(float(((law.tokens - law.mean) ** 2) @ law.weight))
                error = 4.5 * spread / math.sqrt(inside.sum())
                assert column[mine][inside].mean() == pytest.approx(law.mean, abs=error + 1e-9)


def test_the_language_clients_are_read_packed_and_plain(shared):
    folder = shared("data", "traces", "servegen", "language", "m-large")
    clients = read_clients(folder)
    assert len(clients) == 16
    assert all(len(client.window_s) == 2016 for client in clients)
    assert sum(bool(law) for law in clients[0].law) == 2016 - 1768  # chunk 1: 248 live windows
    first_hour = generate(ServeGen(path=str(folder)), seed=0)
    expected = sum(float(client.rate_per_s[:6].sum()) * 600 for client in clients)
    assert first_hour.num_requests == round(expected)
