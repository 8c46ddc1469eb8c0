"""``simkv explain``: where the time of a result's requests went."""

from pathlib import Path

from simkv.cli.output import Json, examples, print_json

EXPLAIN_EXAMPLES = examples(
    "simkv explain results/mine",
    "simkv explain results/mine --request 17",
)


def explain(
    folder: Path,
    /,
    *,
    request: int | None = None,
    as_json: Json = False,
) -> None:
    """Say what requests waited for, and how long they were computed.

    Parameters
    ----------
    folder
        What ``simkv run --out`` wrote.
    request
        Tell the story of this request; without one, the shares of all.
    as_json
        Print it as JSON.
    """
    from simkv.obs.explain import (
        read_parts,
        read_requests,
        render_parts,
        render_story,
        story,
    )

    if request is None:
        told = read_parts(folder)
        text = render_parts(told)
    else:
        told = story(read_requests(folder), request)
        text = render_story(told)
    if as_json:
        print_json(told)
    else:
        print(text)
