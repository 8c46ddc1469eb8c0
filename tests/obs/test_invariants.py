"""The laws of a run's tables notice damage."""

from dataclasses import replace

import pyarrow as pa
import pytest

from simkv.config.run import Measure
from simkv.errors import InvariantError
from simkv.obs.invariants import check_tables
from simkv.obs.recorder import Tables
from simkv.sim.simulate import simulate
from simkv.workload.trace import make_trace
from tests.sim.runs import run_config


@pytest.fixture(scope="module")
def sound() -> Tables:
    # The third request is rejected, the last waits for a slot.
    trace = make_trace(
        arrival_s=[0.0, 0.004, 0.01, 0.02],
        prompt_tokens=[40, 50, 900, 10],
        output_tokens=[5, 4, 4, 3],
    )
    config = run_config(num_blocks=20, max_num_seqs=2, measure=Measure(steps=True))
    return simulate(config, trace)


def damaged(table: pa.Table, column: str, row: int, value: object) -> pa.Table:
    """Return the table with one value changed."""
    index = table.schema.get_field_index(column)
    values = table[column].to_pylist()
    values[row] = value(values[row]) if callable(value) else value
    kind = table.schema.field(index)
    array = pa.array(values, pa.string() if pa.types.is_dictionary(kind.type) else kind.type)
    return table.set_column(index, kind, array.cast(kind.type))


def test_a_sound_run_passes(sound: Tables) -> None:
    assert sound.requests["status"].to_pylist().count("rejected") == 1
    check_tables(sound)


@pytest.mark.parametrize(
    ("table", "column", "row", "value", "told"),
    [
        ("requests", "request", 1, 7, "request 1 is in the wrong row"),
        ("requests", "reason", 2, "", "request 2 is rejected without a reason"),
        ("requests", "reason", 0, "exceeds-pool", "request 0 is rejected without a reason, or not"),
        ("requests", "status", 1, "unfinished", "request 1 has an end too many"),
        ("requests", "finish_s", 1, None, "request 1 has an end too many or too few"),
        ("requests", "replica", 1, -1, "request 1 has a replica and did not come"),
        ("requests", "replica", 2, 0, "request 2 has a replica and did not come"),
        ("requests", "first_scheduled_s", 2, 0.5, "request 2 was rejected and scheduled"),
        ("requests", "first_scheduled_s", 1, 0.001, "request 1 was scheduled before it arrived"),
        ("requests", "first_token_s", 1, 0.001, "request 1 had a token before its prefill"),
        ("requests", "first_token_s", 1, 9.0, "request 1 ended before its first token"),
        ("requests", "first_token_s", 1, None, "request 1 has a first token too many or too few"),
        ("requests", "hit_tokens", 1, 50, "request 1 found more than its prompt"),
        ("requests", "waited_step_s", 1, -1e-3, "request 1 has a negative waited_step_s"),
        ("requests", "waited_step_s", 1, lambda s: s + 1e-8, "request 1 waited longer or shorter"),
        ("requests", "decode_s", 0, lambda s: s + 1e-8, "request 0 has parts that are not its"),
        ("requests", "decode_s", 0, None, "request 0 has parts too many or too few"),
        ("memory", "tail", 0, lambda slots: slots + 0.1, "the accounts add up to"),
        ("memory", "tail", 0, -1.0, "an account is negative: -1.0 slots"),
        ("memory", "start_s", 0, 0.001, "the bins of replica 0 do not follow each other"),
        ("memory", "num_waiting", 0, lambda number: number + 0.1, "num_waiting is "),
        ("memory", "num_running", 0, lambda number: number + 0.1, "num_running is "),
        ("steps", "step_s", 1, -0.01, "a step takes -0.01 s"),
        ("steps", "step_s", 1, 0.011, "replica 0 does two steps at once"),
    ],
)
def test_damage_is_found(
    sound: Tables, table: str, column: str, row: int, value: object, told: str
) -> None:
    broken = damaged(getattr(sound, table), column, row, value)
    with pytest.raises(InvariantError, match=told):
        check_tables(replace(sound, **{table: broken}))
