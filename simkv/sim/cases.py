"""Cases of the vLLM step logs: a configuration in vLLM's words and a workload, line by line.

The form is that of the logs kept in ``SIMKV_DATA/vllm-v1``. A case becomes what any run is made
of: a layout, a policy, requests; nothing here decides anything.
"""

import gzip
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from simkv.config.build import groups_for, scheduler_for
from simkv.cost.choice import Linear
from simkv.cost.linear import LinearCost
from simkv.errors import InputError, TraceError
from simkv.kv.accounts import Accounts
from simkv.kv.blocks import Blocks
from simkv.kv.groups import FullAttention
from simkv.kv.layout import HashChain, NoSharing, Paged
from simkv.kv.sequence import cover
from simkv.sched.policy import VllmV1
from simkv.sched.request import Request
from simkv.sched.scheduler import Scheduler
from simkv.workload.radix import compress

Record = dict[str, Any]
Manager = Literal["accounts", "blocks"]

_DEFAULTS: Record = {
    "block_size": 16,
    "num_gpu_blocks": 256,
    "max_num_batched_tokens": 2048,
    "max_num_seqs": 64,
    "max_model_len": 8192,
    "enable_prefix_caching": True,
    "enable_chunked_prefill": True,
    "policy": "fcfs",
    "long_prefill_token_threshold": 0,
    "long_prefill_token_threshold_adaptive": False,
    "scheduler_reserve_full_isl": True,
    "watermark": 0.0,
    "async_scheduling": False,
    "sliding_window": 0,
    "hybrid_sliding_window": 0,
    "cost": None,
}
_COST_KEYS = ("base", "prefill", "decode", "ctx")
_LINE_KEYS = {"id", "arrival_step", "arrival_time", "after", "delay", "segments", "output_len",
              "output_start", "priority", "cache_salt", "abort_step"}  # fmt: skip
_NO_NUMBERS = {"id", "after", "segments", "cache_salt"}


def read_case(config: Path, workload: Path) -> tuple[Record, list[Record]]:
    """Return a case's configuration and its workload lines.

    Raises
    ------
    InputError
        Where a file cannot be read or is not what it should be, with the line.
    """
    try:
        found = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TraceError(f"is no configuration in JSON ({error})", file=config) from None
    if not isinstance(found, dict):
        raise TraceError("expected a JSON object", file=config)
    lines: list[Record] = []
    opener = gzip.open if workload.suffix == ".gz" else open
    try:
        with opener(workload, "rt", encoding="utf-8") as texts:
            for number, text in enumerate(texts, start=1):
                line = json.loads(text)
                if not isinstance(line, dict):
                    raise TraceError("expected a JSON object", file=workload, line=number)
                lines.append(line)
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise TraceError(f"cannot be read ({error})", file=workload) from None
    except json.JSONDecodeError as error:
        where = len(lines) + 1
        raise TraceError(f"not JSON: {error.msg}", file=workload, line=where) from None
    return found, lines


def has_windows(config: Record) -> bool:
    """Whether a case has windows, which only the physical manager knows."""
    return bool(config.get("sliding_window") or config.get("hybrid_sliding_window"))


@dataclass(slots=True)
class Line:
    """One line of a workload on its way: its request, and who waits for its end."""

    record: Record
    request: Request
    followers: list["Line"] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Return the request's id in the log."""
        return str(self.record["id"])


@dataclass(slots=True)
class Case:
    """Everything that a replay drives.

    Parameters
    ----------
    scheduler, kv
        As in any run.
    lines
        The workload in order of submission; a request's id is its place here.
    cost
        Step times of a timed case, None where time is counted in steps.
    caching
        Whether prefixes are cached.
    """

    scheduler: Scheduler
    kv: Accounts | Blocks
    lines: list[Line]
    cost: LinearCost | None
    caching: bool


def build_case(config: Record, workload: Sequence[Record], manager: Manager) -> Case:
    """Build what a case describes.

    Parameters
    ----------
    config, workload
        The case, as ``read_case`` returns it.
    manager
        Who keeps the memory; windows always get ``blocks``.

    Raises
    ------
    InputError
        Where a key is unknown or a value cannot be used.
    """
    full = _full(config)
    policy = VllmV1(
        max_num_batched_tokens=full["max_num_batched_tokens"],
        max_num_seqs=full["max_num_seqs"],
        max_model_len=full["max_model_len"],
        policy=full["policy"],
        chunked_prefill=full["enable_chunked_prefill"],
        long_prefill_token_threshold=full["long_prefill_token_threshold"],
        long_prefill_adaptive=full["long_prefill_token_threshold_adaptive"],
        reserve_full_prompt=full["scheduler_reserve_full_isl"],
        watermark_ratio=full["watermark"],
        async_scheduling=full["async_scheduling"],
    )
    layout = Paged(
        block_tokens=full["block_size"],
        num_blocks=full["num_gpu_blocks"],
        sharing=HashChain() if full["enable_prefix_caching"] else NoSharing(),
        sliding_window_tokens=full["sliding_window"] or full["hybrid_sliding_window"],
        window_layers="half" if full["hybrid_sliding_window"] else "all",
    )
    kv = _manager(layout, policy, manager)
    return Case(
        scheduler=scheduler_for(policy, kv, max_model_len=full["max_model_len"]),
        kv=kv,
        lines=_lines(workload, full),
        cost=_linear(full["cost"]) if full["cost"] else None,
        caching=full["enable_prefix_caching"],
    )


def _full(config: Record) -> Record:
    """Return a configuration with its defaults, if every key and type is right."""
    if unknown := sorted(config.keys() - _DEFAULTS.keys()):
        raise InputError(f"{unknown[0]}: unknown key of a case; valid keys: {', '.join(_DEFAULTS)}")
    for key, value in config.items():
        wanted = (dict, type(None)) if key == "cost" else (type(_DEFAULTS[key]),)
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if type(value) not in wanted and not (float in wanted and is_number):
            raise InputError(f"{key}: got {value!r}, expected {wanted[0].__name__}")
    if config.get("policy", "fcfs") not in ("fcfs", "priority"):
        raise InputError(f"policy: got {config['policy']!r}, expected fcfs or priority")
    if config.get("sliding_window") and config.get("hybrid_sliding_window"):
        raise InputError("sliding_window and hybrid_sliding_window: give one of them")
    return {**_DEFAULTS, **config}


def _manager(layout: Paged, policy: VllmV1, manager: Manager) -> Accounts | Blocks:
    groups = groups_for(layout, policy, None)
    num_blocks = layout.num_blocks or 0
    caching = isinstance(layout.sharing, HashChain)
    size = layout.block_tokens
    if manager == "accounts" and groups == (FullAttention(),):
        return Accounts(block_tokens=size, num_blocks=num_blocks, prefix_caching=caching)
    return Blocks(block_tokens=size, num_blocks=num_blocks, prefix_caching=caching, groups=groups)


def _linear(cost: Record) -> LinearCost:
    if missing := [key for key in _COST_KEYS if key not in cost]:
        raise InputError(f"cost.{missing[0]}: missing, expected seconds")
    return LinearCost(
        Linear(
            base_s=cost["base"],
            prefill_token_s=cost["prefill"],
            decode_s=cost["decode"],
            context_token_s=cost["ctx"],
        )
    )


def _lines(workload: Sequence[Record], config: Record) -> list[Line]:
    """Build the requests; equal token numbers under equal salts are equal content."""
    arrival = "arrival_time" if config["cost"] else "arrival_step"
    for number, line in enumerate(workload, start=1):
        _check_line(line, number, arrival, config["max_model_len"])
    prompts = [sum(n for _, n in line["segments"]) for line in workload]
    content = compress(
        [_tokens(line) for line in workload],
        [[prompt] for prompt in prompts],
        [line.get("cache_salt") or "" for line in workload],
    )
    tie = {name: place for place, name in enumerate(sorted(str(line["id"]) for line in workload))}
    lines = []
    for index, (line, prompt, segments) in enumerate(zip(workload, prompts, content, strict=True)):
        total = prompt + line["output_len"]
        request = Request(
            id=index,
            segments=cover(segments, total, index),
            num_tokens=prompt,
            final_tokens=total - 1,
            arrival_s=0.0,
            prompt_tokens=prompt,
            output_tokens=line["output_len"],
            priority=line.get("priority", 0),
            tie=tie[str(line["id"])],
        )
        lines.append(Line(line, request))
    _link(lines)
    return lines


def _check_line(line: Record, number: int, arrival: str, max_model_len: int) -> None:
    """Raise InputError where a workload line lacks something or asks for the impossible."""
    wanted = {"id", "segments", "output_len", "output_start"}
    wanted.add("after" if "after" in line else arrival)
    if missing := sorted(wanted - line.keys()):
        raise InputError(f"workload line {number}: {missing[0]} is missing")
    if unknown := sorted(line.keys() - _LINE_KEYS):
        raise InputError(f"workload line {number}: unknown field {unknown[0]}")
    numbers = [line[key] for key in sorted(line.keys() & _LINE_KEYS - _NO_NUMBERS)]
    runs = line["segments"]
    if isinstance(runs, list) and all(isinstance(run, list) and len(run) == 2 for run in runs):
        numbers += [value for run in runs for value in run]
    else:
        raise InputError(f"workload line {number}: segments must be pairs [start, length]")
    for value in numbers:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise InputError(f"workload line {number}: got {value!r}, expected a number")
    prompt = sum(n for _, n in line["segments"])
    if prompt < 1 or line["output_len"] < 1 or prompt >= max_model_len:
        raise InputError(
            f"workload line {number}: {prompt} prompt and {line['output_len']} output tokens, "
            f"expected 1 or more of each and a prompt below max_model_len={max_model_len}"
        )


def _tokens(line: Record) -> np.ndarray[Any, np.dtype[np.int64]]:
    runs = [*line["segments"], [line["output_start"], line["output_len"]]]
    return np.concatenate([np.arange(start, start + n) for start, n in runs])


def _link(lines: Iterable[Line]) -> None:
    """Tell each request who waits for its end."""
    by_name: dict[str, Line] = {}
    for number, line in enumerate(lines, start=1):
        if line.name in by_name:
            raise InputError(f"workload line {number}: id {line.name} is there already")
        by_name[line.name] = line
    for number, line in enumerate(by_name.values(), start=1):
        after = line.record.get("after")
        if after is None:
            continue
        if str(after) not in by_name:
            raise InputError(f"workload line {number}: comes after {after}, which is not there")
        by_name[str(after)].followers.append(line)
