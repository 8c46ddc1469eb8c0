"""The shipped samples: what their page says of them, and that they can be made again."""

import dataclasses
import importlib.util
from pathlib import Path

import numpy as np
import pytest

from simkv.assets import asset_folder
from simkv.workload.describe import describe
from simkv.workload.load import read_trace
from simkv.workload.source import TraceFile
from simkv.workload.trace import Trace

SCRIPT = Path(__file__).parents[2] / "scripts" / "make_sample.py"
NAMES = ["azure-conv-10min", "mooncake-conv-5min", "sharegpt-agents"]


def test_these_are_all_and_each_is_small():
    files = sorted(asset_folder("samples").glob("*.parquet"))
    assert [file.stem for file in files] == NAMES
    assert all(file.stat().st_size < 1_000_000 for file in files)


def test_the_default_workload_can_be_told_apart_at_every_token():
    trace = read_trace(TraceFile().path)
    found = describe(trace)
    assert found["num_requests"] == 867
    assert found["granularity_tokens"] == 1
    assert found["sessions"]["num_sessions"] == 28
    assert found["content"]["repeated_ratio"] == pytest.approx(0.64, abs=0.005)
    assert trace.output_tokens.min() == 1
    covered = [sum(n for _, n in trace.segments(row)) for row in range(trace.num_requests)]
    assert (covered >= trace.prompt_tokens).all()
    for row in np.flatnonzero(trace.after >= 0):
        assert trace.session[trace.after[row]] == trace.session[row]
        assert trace.turn[trace.after[row]] == trace.turn[row] - 1
        assert trace.arrival_s[trace.after[row]] <= trace.arrival_s[row]


@pytest.mark.parametrize("name", NAMES)
def test_samples_are_in_order_and_start_near_zero(name):
    trace = read_trace(f"sample:{name}")
    assert (np.diff(trace.arrival_s) >= 0).all()
    assert 0 <= trace.arrival_s[0] < 0.1
    assert trace.name == name


def test_the_script_makes_the_shipped_samples(shared):
    spec = importlib.util.spec_from_file_location("make_sample", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    for made in script.make_all(shared("data", "traces")):
        shipped = read_trace(f"sample:{made.name}")
        for field in dataclasses.fields(Trace):
            left, right = getattr(made, field.name), getattr(shipped, field.name)
            if isinstance(left, np.ndarray):
                assert np.array_equal(left, right, equal_nan=left.dtype.kind == "f"), field.name
            else:
                assert left == right
