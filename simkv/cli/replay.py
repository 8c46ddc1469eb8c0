"""``simkv replay``: a case of the vLLM step logs, step by step."""

import gzip
import json
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from simkv.cli.output import examples, warn

REPLAY_EXAMPLES = examples(
    "simkv replay case.config.json case.workload.jsonl.gz --out steps.jsonl",
    "simkv replay a.config.json a.workload.jsonl --out s.jsonl --manager blocks",
)


def replay(
    config: Annotated[Path, Parameter(name="CASE.config.json")],
    workload: Annotated[Path, Parameter(name="CASE.workload.jsonl.gz")],
    /,
    *,
    out: Path,
    manager: Literal["accounts", "blocks"] = "accounts",
) -> None:
    """Run a case of the vLLM step logs and write what was decided in each of its steps.

    Parameters
    ----------
    config
        The case's configuration, in vLLM's words (JSON).
    workload
        Its requests, one JSON object a line, gzipped or not.
    out
        File of the steps, one JSON object a line; gzipped where the name ends in .gz.
    manager
        Who keeps the KV memory: accounts, or blocks, which writes block ids and the order of the
        free queue too.
    """
    from simkv.sim.cases import has_windows, read_case
    from simkv.sim.replay import replay as steps_of

    case, lines = read_case(config, workload)
    if manager == "accounts" and has_windows(case):
        warn(["accounts know no windows; this case is replayed with --manager blocks"], kind="note")
    partial = out.with_name(f".{out.name}.part")
    num_steps = 0
    opener = gzip.open if out.suffix == ".gz" else open
    try:
        with opener(partial, "wt", encoding="utf-8") as file:
            for step in steps_of(case, lines, manager=manager):
                file.write(json.dumps(step, separators=(",", ":")) + "\n")
                num_steps += 1
        partial.replace(out)
    finally:
        partial.unlink(missing_ok=True)
    print(f"{num_steps:,} steps in {out}")
