"""Make the shipped trace samples from published traces; a re-run gives the same traces.

``python scripts/make_sample.py --data DIR`` where DIR holds ``traces/`` (the folder ``data`` under
the one that SIMKV_DATA names). What each sample is, and why, is in ``traces/samples/README.md``.
"""

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from simkv.assets import asset_folder
from simkv.rng import stream
from simkv.workload.load import read_trace
from simkv.workload.source import Transform
from simkv.workload.store import write_trace
from simkv.workload.trace import Trace
from simkv.workload.transform import apply


def make_all(traces: Path) -> list[Trace]:
    """Return every sample, made from the folder of published traces."""
    return [
        sharegpt_agents(traces),
        first_part(
            traces / "azure-2023" / "AzureLLMInferenceTrace_conv.csv",
            "azure-conv-10min",
            duration_s=600.0,
            source="Azure LLM inference trace 2023, conversation, first 10 minutes (CC-BY-4.0)",
        ),
        first_part(
            traces / "mooncake" / "conversation_trace.jsonl",
            "mooncake-conv-5min",
            duration_s=300.0,
            source="Mooncake conversation trace, FAST'25, first 5 minutes (Apache-2.0)",
        ),
    ]


def first_part(path: Path, name: str, *, duration_s: float, source: str) -> Trace:
    """Return the first part of a trace."""
    trace = apply(read_trace(path), Transform(duration_s=duration_s), seed=0)
    return dataclasses.replace(trace, name=name, notes=(source,))


def sharegpt_agents(traces: Path) -> Trace:
    """Put chats and agent sessions on one time line.

    The chats arrive as published. Each agent session starts at a random moment of their window and
    keeps its own pace.
    """
    name = "sharegpt-agents"
    chats = read_trace(traces / "llmservingsim" / "sharegpt-llama-3.1-8b-300-sps10.jsonl.gz")
    window_s = float(chats.arrival_s[-1])
    logs = traces / "lmcache-agent-trace"
    agents = [
        _spread(_answered(read_trace(logs / kind)), window_s, stream(0, "sample", name, kind))
        for kind in ("miniswe", "taubench")
    ]
    trace = _merge([chats, *agents])
    return dataclasses.replace(
        trace,
        name=name,
        notes=(
            "chats of LLMServingSim (MIT) and agent sessions of LMCache's agent traces "
            "(Apache-2.0) on one time line; traces/samples/README.md says what was changed",
        ),
    )


def _answered(trace: Trace) -> Trace:
    """Give each request an output token: an answer that the log leaves empty was a tool call."""
    return dataclasses.replace(trace, output_tokens=np.maximum(trace.output_tokens, 1))


def _spread(trace: Trace, window_s: float, rng: np.random.Generator) -> Trace:
    """Start each session at a random moment of the window, to the millisecond."""
    sessions, member = np.unique(trace.session, return_inverse=True)
    recorded_s = np.full(len(sessions), np.inf)
    np.minimum.at(recorded_s, member, trace.arrival_s)
    start_s = np.round(rng.uniform(0.0, window_s, len(sessions)), 3)
    arrival_s = np.round(trace.arrival_s - recorded_s[member] + start_s[member], 6)
    return dataclasses.replace(trace, arrival_s=arrival_s)


def _merge(traces: Sequence[Trace]) -> Trace:
    """Join traces that share no content, tenant by trace, in order of arrival."""
    rows = np.cumsum([0, *(trace.num_requests for trace in traces)])
    ids = np.cumsum([0, *(int(trace.segment_id.max(initial=-1)) + 1 for trace in traces)])
    sessions = np.cumsum([0, *(int(trace.session.max(initial=-1)) + 1 for trace in traces)])

    def joined(name: str) -> np.ndarray:
        return np.concatenate([getattr(trace, name) for trace in traces])

    def moved(name: str, by: np.ndarray) -> np.ndarray:
        columns = [getattr(trace, name) for trace in traces]
        return np.concatenate(
            [np.where(column >= 0, column + by[at], -1) for at, column in enumerate(columns)]
        )

    content = [trace.segments(row) for trace in traces for row in range(trace.num_requests)]
    shift = np.repeat(ids[:-1], np.diff(rows)).tolist()
    order = np.argsort(joined("arrival_s"), kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    after = moved("after", rows)[order]
    segments = [[(number + shift[row], n) for number, n in content[row]] for row in order]
    return Trace(
        arrival_s=joined("arrival_s")[order],
        prompt_tokens=joined("prompt_tokens")[order],
        output_tokens=joined("output_tokens")[order],
        segment_offset=np.cumsum([0, *map(len, segments)], dtype=np.int64),
        segment_id=np.array([number for row in segments for number, _ in row], dtype=np.int64),
        segment_tokens=np.array([n for row in segments for _, n in row], dtype=np.int64),
        session=moved("session", sessions)[order],
        turn=joined("turn")[order],
        after=np.where(after >= 0, place[after], -1),
        think_s=joined("think_s")[order],
        patience_s=joined("patience_s")[order],
        tenant=np.repeat(np.arange(len(traces)), np.diff(rows))[order],
        priority=joined("priority")[order],
        granularity_tokens=1,
    )


def main() -> None:
    """Write the samples and print their sizes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder that holds traces/")
    parser.add_argument("--out", type=Path, default=asset_folder("samples"))
    options = parser.parse_args()
    for trace in make_all(options.data / "traces"):
        path = options.out / f"{trace.name}.parquet"
        write_trace(trace, path)
        print(f"{path.name}: {trace.num_requests:,} requests, {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
