"""The configuration of one run: a tree of frozen values.

Files, ``--set a.b=c`` and sweep axes name its fields by dotted paths. The unions below are the
registry: a new policy is its class and one word here.
"""

from dataclasses import dataclass, field
from typing import Literal

from simkv.cost.choice import Cost, MeasuredTable
from simkv.errors import ConfigError
from simkv.kv.layout import Layout, Paged
from simkv.route.policy import RoundRobin, Routing
from simkv.sched.policy import VllmV1
from simkv.workload.source import TraceFile, Workload

Sched = VllmV1


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoice:
    """Which model is served.

    Parameters
    ----------
    name
        Name from ``simkv models``, or the path of a Hugging Face ``config.json``.
    weight_dtype, kv_dtype
        Number formats of the weights and of the KV cache.
    tensor_parallel
        Devices that share a replica's layers.
    """

    name: str = "llama-3.1-8b"
    weight_dtype: Literal["bf16", "fp8"] = "bf16"
    kv_dtype: Literal["bf16", "fp8"] = "bf16"
    tensor_parallel: int = 1

    def __post_init__(self) -> None:
        """Check ranges, for library callers too."""
        if self.tensor_parallel < 1:
            raise ConfigError(
                f"got {self.tensor_parallel}, expected 1 or more", path="model.tensor_parallel"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceChoice:
    """Which device a replica runs on.

    Parameters
    ----------
    name
        Name from ``simkv models`` (devices).
    memory_utilization_ratio
        Share of the device's memory that the engine may use.
    """

    name: str = "h200"
    memory_utilization_ratio: float = 0.9

    def __post_init__(self) -> None:
        """Check ranges, for library callers too."""
        if not 0 < self.memory_utilization_ratio <= 1:
            raise ConfigError(
                f"got {self.memory_utilization_ratio}, expected a ratio above 0 and up to 1",
                path="device.memory_utilization_ratio",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """How many replicas serve the workload, and how requests reach them.

    Parameters
    ----------
    num_replicas
        Equal replicas, each with its own KV memory.
    routing
        Who gets an arriving request.
    """

    num_replicas: int = 1
    routing: Routing = field(default_factory=RoundRobin)

    def __post_init__(self) -> None:
        """Check ranges, for library callers too."""
        if self.num_replicas < 1:
            raise ConfigError(
                f"got {self.num_replicas}, expected 1 or more", path="cluster.num_replicas"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Objectives:
    """Latency objectives: a request that meets both counts towards goodput.

    Parameters
    ----------
    ttft_s
        Longest time from arrival to first token.
    tpot_s
        Longest mean time of an output token after the first.
    """

    ttft_s: float = 2.0
    tpot_s: float = 0.1

    def __post_init__(self) -> None:
        """Check ranges, for library callers too."""
        for name in ("ttft_s", "tpot_s"):
            if getattr(self, name) <= 0:
                raise ConfigError(
                    f"got {getattr(self, name)}, expected more than 0", path=f"objectives.{name}"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """Which part of a run counts.

    Parameters
    ----------
    warmup_s
        Requests that arrive before this count in no statistic, and memory before it neither.
    drain
        Simulate on after the last arrival until every request has ended; otherwise stop there
        and report the rest as unfinished.
    steps
        Record a table of steps too.
    """

    warmup_s: float = 0.0
    drain: bool = True
    steps: bool = False

    def __post_init__(self) -> None:
        """Check ranges, for library callers too."""
        if self.warmup_s < 0:
            raise ConfigError(f"got {self.warmup_s}, expected 0 or more", path="measure.warmup_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """One run: a workload on a cluster of equal replicas.

    Parameters
    ----------
    seed
        Root of every random stream of the run.
    workload, model, device
        What is served, and on what.
    kv
        Layout of a replica's KV memory.
    sched, cost, cluster
        How steps are composed, what they cost, and how many replicas there are.
    objectives, measure
        What counts as good, and which part of the run counts.
    """

    seed: int = 0
    workload: Workload = field(default_factory=TraceFile)
    model: ModelChoice = field(default_factory=ModelChoice)
    device: DeviceChoice = field(default_factory=DeviceChoice)
    kv: Layout = field(default_factory=Paged)
    sched: Sched = field(default_factory=VllmV1)
    cost: Cost = field(default_factory=MeasuredTable)
    cluster: Cluster = field(default_factory=Cluster)
    objectives: Objectives = field(default_factory=Objectives)
    measure: Measure = field(default_factory=Measure)

    def __post_init__(self) -> None:
        """Check ranges, for library callers too."""
        if self.seed < 0:
            raise ConfigError(f"got {self.seed}, expected 0 or more", path="seed")
