"""``simkv trace``: look at traces, convert them, say what of them a prefix cache could serve."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from simkv.cli.output import Json, examples, print_json, warn
from simkv.errors import InputError

DESCRIBE_EXAMPLES = examples(
    "simkv trace describe sample:sharegpt-agents",
    "simkv trace describe AzureLLMInferenceTrace_conv.csv --json",
    "simkv trace describe chat.jsonl --tokenizer tokenizer.json",
)
CONVERT_EXAMPLES = examples(
    "simkv trace convert conversation_trace.jsonl conversation.parquet",
    "simkv trace convert requests.csv requests.parquet --format plain",
)
REUSE_EXAMPLES = examples(
    "simkv trace reuse conversation_trace.jsonl",
    "simkv trace reuse conversation_trace.jsonl --capacity-blocks 1000,5000 --partial-blocks drop",
    "simkv trace reuse agents/ --interleave --capacity-blocks 50000 --json",
)

trace = App(
    name="trace",
    help="Look at request traces: describe, convert, and say what a prefix cache could serve.",
    help_epilogue=examples("simkv trace describe sample:sharegpt-agents"),
    help_format="plaintext",
)

_Format = Annotated[str, Parameter(name="--format")]


@trace.command(help_epilogue=DESCRIBE_EXAMPLES)
def describe(
    *files: Annotated[str, Parameter(name="FILE")],
    format: _Format = "auto",
    tokenizer: Path | None = None,
    as_json: Json = False,
) -> None:
    """Describe traces in numbers: lengths, arrivals, sessions, how fine their content is.

    Parameters
    ----------
    files
        Files, folders of files of one format, or sample:NAME; each is described by itself.
    format
        Name of the format; auto recognises it.
    tokenizer
        tokenizer.json for formats that hold text; without it words are counted.
    as_json
        Print JSON: an object for one file, a list for several.
    """
    from simkv.workload.describe import describe, render
    from simkv.workload.load import read_trace

    if not files:
        raise InputError("simkv trace describe needs a file, such as sample:sharegpt-agents")
    found = [describe(read_trace(file, format=format, tokenizer=tokenizer)) for file in files]
    if as_json:
        print_json(found[0] if len(found) == 1 else found)
    else:
        print("\n\n".join(map(render, found)))


@trace.command(help_epilogue=CONVERT_EXAMPLES)
def convert(
    file: Annotated[str, Parameter(name="FILE")],
    out: Annotated[Path, Parameter(name="OUT")],
    /,
    *,
    format: _Format = "auto",
    tokenizer: Path | None = None,
) -> None:
    """Write a trace as simkv's own table (Parquet), which reads fastest and keeps everything.

    Parameters
    ----------
    file
        File, folder of files of one format, or sample:NAME.
    out
        The Parquet file to write.
    format
        Name of the format; auto recognises it.
    tokenizer
        tokenizer.json for formats that hold text; without it words are counted.
    """
    from simkv.workload.load import read_trace
    from simkv.workload.store import write_trace

    if out.suffix != ".parquet":
        raise InputError(f"{out}: is not called .parquet, which is what convert writes")
    found = read_trace(file, format=format, tokenizer=tokenizer)
    write_trace(found, out)
    warn(found.notes, kind="note")
    print(f"{out}: {found.num_requests:,} requests")


@trace.command(help_epilogue=REUSE_EXAMPLES)
def reuse(
    file: Annotated[str, Parameter(name="FILE")],
    /,
    *,
    capacity_blocks: str = "",
    partial_blocks: Literal["keep", "drop"] = "keep",
    block_tokens: int | None = None,
    interleave: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    format: _Format = "auto",
    tokenizer: Path | None = None,
    as_json: Json = False,
) -> None:
    """Count what a prefix cache would hit: without limit, and LRU at given capacities.

    Requests go through one at a time, without time or scheduling; outputs are not cached.

    Parameters
    ----------
    file
        File, folder of files of one format, or sample:NAME.
    capacity_blocks
        Sizes of the LRU caches in blocks, with commas between.
    partial_blocks
        Whether the last, partly filled block of a prompt counts.
    block_tokens
        Block size; the trace's own granularity by default.
    interleave
        Take requests in order of arrival instead of in order of the file.
    format
        Name of the format; auto recognises it.
    tokenizer
        tokenizer.json for formats that hold text; without it words are counted.
    as_json
        Print JSON.
    """
    from simkv.workload.load import read_trace
    from simkv.workload.reuse import render, reuse

    capacities = _whole_numbers(capacity_blocks)
    result = reuse(
        read_trace(file, format=format, tokenizer=tokenizer),
        partial_blocks=partial_blocks,
        capacity_blocks=capacities,
        interleave=interleave,
        block_tokens=block_tokens,
    )
    if as_json:
        print_json(result)
    else:
        print(render(result))


def _whole_numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise InputError(
            f"--capacity-blocks {text}: expected whole numbers with commas between, such as "
            "1000,5000"
        ) from None
