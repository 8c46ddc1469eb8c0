"""What fidelity tables are made of, on numbers that are worked out by hand."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from experiments.fidelity import figure
from simkv.cost.choice import Linear
from simkv.cost.linear import LinearCost
from simkv.errors import InputError
from simkv.fidelity import markdown
from simkv.fidelity.outcome import (
    absolute_error_percent,
    error_percent,
    outcome,
    statistics,
)
from simkv.fidelity.stamps import step_errors


def test_metrics_and_statistics_by_hand() -> None:
    found = outcome(
        np.array([0.0, 1.0]), np.array([2.0, 2.0]), np.array([6.0, 2.0]), np.array([5, 1])
    )
    assert found.ttft_s.tolist() == [2.0, 1.0]
    assert found.tpot_s[0] == 1.0
    assert np.isnan(found.tpot_s[1])
    assert found.e2e_s.tolist() == [6.0, 1.0]
    values = statistics(found)
    assert len(values) == 15
    assert values["ttft_s", "P90"] == pytest.approx(1.9)
    assert values["tpot_s", "P99"] == 1.0


def test_errors_are_relative_to_what_was_measured() -> None:
    assert error_percent(pd.Series([1.1]), pd.Series([1.0]))[0] == pytest.approx(10.0)
    measured = pd.DataFrame({"ttft_s": [1.0, 2.0]})
    told = pd.DataFrame({"ttft_s": [1.1, 1.6]})
    assert absolute_error_percent(told, measured).ttft_s == pytest.approx(15.0)


def test_steps_are_read_off_stamps() -> None:
    # 30 requests, the first decoding throughout at 10 ms a step, each other one admitted alone:
    # one step of decodes, then 40 ms with its prompt; it ends ten steps after its first token.
    first = pd.DataFrame({"input_tokens": [100], "output_tokens": [10_000], "scheduled_s": [0.0],
                          "first_token_s": [0.02], "last_token_s": [100.02]})  # fmt: skip
    admitted = 1.0 + np.arange(29)
    others = pd.DataFrame({"input_tokens": 300, "output_tokens": 11, "scheduled_s": admitted,
                           "first_token_s": admitted + 0.05,
                           "last_token_s": admitted + 0.15})  # fmt: skip
    table = pd.concat([first, others], ignore_index=True)
    cost = LinearCost(Linear(base_s=0.01, prefill_s=0.03))
    found = step_errors(cost, table, np.zeros(30, np.int64))
    assert found.loc["decodes alone", "found"] == 29
    assert found.loc["a prompt of up to 512 tokens, and decodes", "found"] == 29
    assert found.q50.tolist() == pytest.approx([0.0, 0.0], abs=1e-6)


def test_the_block_of_a_document_is_renewed_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "document.md"
    file.write_text(f"before\n{markdown.START}\nold\n{markdown.END}\nafter\n")
    markdown.rewrite(file, "| new |\n")
    assert markdown.generated(file) == "| new |\n"
    assert file.read_text().startswith(f"before\n{markdown.START}\n")
    assert file.read_text().endswith(f"{markdown.END}\nafter\n")
    file.write_text("no marks")
    with pytest.raises(InputError, match="lacks the line"):
        markdown.rewrite(file, "x")


def test_the_figure_has_a_panel_for_each_run_and_metric() -> None:
    table = outcome(np.zeros(3), np.arange(1.0, 4.0), np.arange(2.0, 5.0), np.array([2, 2, 3]))
    runs = [("a", "measured"), ("a", "simkv"), ("b", "measured")]
    drawn = figure.draw(pd.concat([table.assign(run=run, by=by) for run, by in runs]))
    assert len(drawn.axes) == 6
