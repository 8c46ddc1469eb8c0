"""``simkv run``: one configuration, one result."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from simkv.cli.output import Json, Sets, examples, print_json, share_shown, warn
from simkv.errors import InputError

Flag = Annotated[bool, Parameter(negative="", show_default=False)]

if TYPE_CHECKING:
    from simkv.config.run import RunConfig
    from simkv.obs.recorder import Tables

RUN_EXAMPLES = examples(
    "simkv run",
    "simkv run --set kv.block_tokens=32 --set cluster.num_replicas=4",
    "simkv run my.toml --out results/mine --strict",
    "simkv run --set cost.kind=roofline --print-config > my.toml",
    "simkv run my.toml --check --steps --timeline run.json --out results/mine",
)


def run(
    config: Path | None = None,
    /,
    *,
    sets: Sets = (),
    out: Path | None = None,
    as_json: Json = False,
    print_config: Flag = False,
    strict: Flag = False,
    check: Flag = False,
    steps: Flag = False,
    timeline: Path | None = None,
) -> None:
    """Simulate one configuration and print what came out.

    Parameters
    ----------
    config
        TOML file; without one, the embedded trace sample on one H200.
    sets
        Change one key, KEY=VALUE with a dotted path; may be repeated. "none" stands for no value.
    out
        Write the tables into this folder too (Parquet and CSV, with the resolved configuration).
    as_json
        Print the summary as JSON.
    print_config
        Print every key with its value, unit, origin and meaning, as TOML, and simulate nothing.
    strict
        Exit with code 2 if any request was rejected.
    check
        Check every law at every step; several times slower, and a broken law is a bug.
    steps
        Record a table of steps, for --out; the same as --set measure.steps=true.
    timeline
        Write a timeline into this file, to open in ui.perfetto.dev.
    """
    from simkv.config.load import config_to_mapping, resolve

    resolved = resolve(config, sets=(*sets, "measure.steps=true") if steps else sets)
    mapping = config_to_mapping(resolved.config)
    if print_config and as_json:
        print_json({"config": mapping, "origin": dict(resolved.origin)})
        return
    if print_config:
        from simkv.config.show import show_config

        print(show_config(resolved), end="")
        return
    from simkv.obs.files import check_out, write_tables
    from simkv.obs.report import render_summary

    if out is not None:
        check_out(out)
    tables = _simulate(resolved.config, check=check, timeline=timeline)
    warn(tables.notes, kind="note")
    warn(tables.warnings)
    if out is not None:
        write_tables(tables, out, config=mapping)
    if as_json:
        print_json(tables.summary)
    else:
        print(render_summary(tables.summary))
    _check_served(tables.summary, strict=strict)


def _simulate(config: "RunConfig", *, check: bool, timeline: Path | None) -> "Tables":
    """Simulate, showing how far it is; a timeline appears only if all went well."""
    from simkv.obs.timeline import Timeline
    from simkv.sim.simulate import simulate

    with share_shown("simulating") as progress:
        if timeline is None:
            return simulate(config, progress=progress, check=check)
        with Timeline(timeline) as watcher:
            tables = simulate(config, progress=progress, check=check, watchers=[watcher])
    tables.warnings += watcher.warnings()
    return tables


def _check_served(summary: Mapping[str, Any], *, strict: bool) -> None:
    """Raise InputError where no request could run, or, if strict, where any was rejected."""
    num_requests, num_rejected = summary["num_requests"], summary["num_rejected"]
    reasons = ", ".join(f"{reason}: {count:,}" for reason, count in summary["rejected"].items())
    if num_requests and num_rejected == num_requests:
        raise InputError(f"none of {num_requests:,} requests could run ({reasons})")
    if strict and num_rejected:
        raise InputError(
            f"{num_rejected:,} of {num_requests:,} requests were rejected ({reasons}), which "
            "--strict forbids"
        )
