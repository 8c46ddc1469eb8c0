"""vLLM 0.19 with Llama-3.1-8B on two cards, as measured by others, predicted from kernel tables.

Reads ``data/e2e`` (MIT, LLMServingSim) under the folder that SIMKV_DATA names. Arrivals are the
moments at which the engine took the requests in (``queued_s``): a client in the same process
delays them against the plan, and that is not the engine's doing.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from simkv.config.run import DeviceChoice, RunConfig
from simkv.fidelity.outcome import outcome, simulated
from simkv.kv.layout import HashChain, NoSharing, Paged
from simkv.obs.recorder import Tables
from simkv.sched.policy import VllmV1
from simkv.sim.simulate import simulate
from simkv.workload.load import load
from simkv.workload.source import TraceFile

TRACE = ("data", "traces", "llmservingsim", "sharegpt-llama-3.1-8b-300-sps10.jsonl.gz")


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One measured run.

    Parameters
    ----------
    title, folder, device
        For people, under ``data/e2e``, and in the device list.
    max_num_seqs
        As recorded.
    num_blocks
        Blocks of the pool, null block included; None where it was not recorded and the device's
        memory says.
    max_model_len
        As recorded; None for the model's.
    """

    title: str
    folder: str
    device: str
    max_num_seqs: int
    num_blocks: int | None
    max_model_len: int | None

    def requests(self, data: Path) -> pd.DataFrame:
        """Read its requests, one row each with the engine's time stamps."""
        return pd.read_csv(data / "data" / "e2e" / self.folder / "requests.csv.gz")

    def measured(self, data: Path) -> pd.DataFrame:
        """Return the metrics of its requests."""
        table = self.requests(data)
        names = ("queued_s", "first_token_s", "last_token_s", "output_tokens")
        return outcome(*(table[name].to_numpy() for name in names))

    def peer(self, data: Path) -> pd.DataFrame:
        """Return the metrics of LLMServingSim's own simulation of the run."""
        file = data / "data" / "e2e" / self.folder / "peer_simulator_requests.csv.gz"
        columns = pd.read_csv(file)[["ttft_ns", "tpot_ns", "latency_ns"]]
        return (columns / 1e9).set_axis(["ttft_s", "tpot_s", "e2e_s"], axis="columns")

    def load(self, data: Path) -> pd.DataFrame:
        """Read what was logged every second: running, waiting, and more."""
        return pd.read_csv(data / "data" / "e2e" / self.folder / "timeseries.csv")

    def config(
        self,
        data: Path,
        *,
        num_blocks: int | None = None,
        async_scheduling: bool = True,
        prefix_caching: bool = True,
    ) -> RunConfig:
        """Return the run's configuration: as recorded, or with what is given here changed."""
        return RunConfig(
            workload=TraceFile(path=str(data.joinpath(*TRACE))),
            device=DeviceChoice(name=self.device),
            kv=Paged(
                block_tokens=16,
                num_blocks=num_blocks or self.num_blocks,
                sharing=HashChain() if prefix_caching else NoSharing(),
            ),
            sched=VllmV1(
                max_num_batched_tokens=2048,
                max_num_seqs=self.max_num_seqs,
                max_model_len=self.max_model_len,
                async_scheduling=async_scheduling,
            ),
        )


RTX_4090 = Card(
    title="RTX 4090",
    folder="llmservingsim-rtx4090",
    device="rtx-4090",
    max_num_seqs=256,
    num_blocks=2588,
    max_model_len=32768,
)
RTX_PRO_6000 = Card(
    title="RTX PRO 6000",
    folder="llmservingsim-rtxpro6000",
    device="rtx-pro-6000",
    max_num_seqs=128,
    num_blocks=None,
    max_model_len=None,
)
CARDS = (RTX_4090, RTX_PRO_6000)


@dataclass(frozen=True, slots=True)
class Predicted:
    """A simulated run: metrics, prefix hits, the most that ran and waited, preemptions."""

    metrics: pd.DataFrame
    hit_tokens: np.ndarray
    peak_running: int
    peak_waiting: int
    num_preemptions: int


def predict(card: Card, data: Path, config: RunConfig) -> Predicted:
    """Simulate a card's workload, each request arriving when the engine took it in."""
    config = replace(config, measure=replace(config.measure, steps=True))
    trace = load(config.workload, seed=config.seed)
    trace = replace(trace, arrival_s=card.requests(data).queued_s.to_numpy())
    tables: Tables = simulate(config, trace)
    assert tables.steps is not None
    return Predicted(
        metrics=simulated(tables.requests),
        hit_tokens=tables.requests["hit_tokens"].to_numpy(),
        peak_running=int(tables.steps["num_running"].to_numpy().max()),
        peak_waiting=int(tables.steps["num_waiting"].to_numpy().max()),
        num_preemptions=int(tables.requests["num_preemptions"].to_numpy().sum()),
    )
