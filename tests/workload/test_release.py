import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from simkv.workload.ragged import gather, group
from simkv.workload.release import nearest, open_s, start_s
from simkv.workload.trace import make_trace

NAN = float("nan")


def chained(arrival_s, after, think_s):
    rows = len(after)
    return make_trace(
        prompt_tokens=[1] * rows,
        output_tokens=[1] * rows,
        arrival_s=arrival_s,
        after=after,
        think_s=think_s,
    )


def test_a_chain_is_followed_to_the_time_that_is_known():
    trace = chained([5.0, NAN, NAN, 9.0, NAN], [-1, 0, 1, 2, -1], [NAN, 2.0, NAN, 1.0, NAN])
    assert np.array_equal(start_s(trace), [5.0, 5.0, 5.0, 9.0, NAN], equal_nan=True)
    assert np.array_equal(open_s(trace), [5.0, 7.0, 7.0, 9.0, NAN], equal_nan=True)


@given(st.data())
def test_the_nearest_is_found_as_by_walking(data):
    rows = data.draw(st.integers(1, 30))
    rank = data.draw(st.permutations(range(rows)))
    # Whatever the order of the rows, a chain has no circle: releasers have a lower rank.
    after = np.array(
        [
            data.draw(
                st.sampled_from([-1, *(other for other in range(rows) if rank[other] < rank[row])])
            )
            for row in range(rows)
        ]
    )
    wanted = np.array(data.draw(st.lists(st.booleans(), min_size=rows, max_size=rows)))
    think_s = np.array(data.draw(st.lists(st.integers(0, 9), min_size=rows, max_size=rows)), float)
    arrival_s = np.where(wanted, 100.0 * np.arange(rows), np.nan)

    def walk(row):
        waited = 0.0
        while row >= 0 and not wanted[row]:
            waited += think_s[row]
            row = after[row]
        return row, waited

    walked = [walk(row) for row in range(rows)]
    assert nearest(after, wanted).tolist() == [row for row, _ in walked]
    expected = [100.0 * row + waited if row >= 0 else NAN for row, waited in walked]
    assert np.array_equal(open_s(chained(arrival_s, after, think_s)), expected, equal_nan=True)


def test_ragged_rows_are_picked_in_any_order_and_again():
    offset = np.array([0, 2, 2, 5])
    index, picked = gather(offset, np.array([2, 0, 1, 2]))
    assert index.tolist() == [2, 3, 4, 0, 1, 2, 3, 4]
    assert picked.tolist() == [0, 3, 5, 5, 8]


def test_elements_are_grouped_in_order():
    elements, offset = group(np.array([1, 0, 1, 3]), 4)
    assert elements.tolist() == [1, 0, 2, 3]
    assert offset.tolist() == [0, 1, 3, 3, 4]
