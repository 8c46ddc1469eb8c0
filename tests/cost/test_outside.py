"""What is said of questions outside the measured range, in whatever order they came."""

from itertools import permutations

from simkv.cost.outside import Outside


def test_the_furthest_is_told_whichever_came_first():
    asked = [(8.0, 0.0), (9.0, 0.0), (3.0, 0.0)]
    told = set()
    for order in permutations(asked):
        outside = Outside()
        for value, measured in order:
            outside.note("tokens", value, measured)
        told.update(outside.sentences())
    assert told == {
        "tokens: asked up to 9, measured up to 0 (3 times); beyond it the fitted formula is "
        "extrapolated"
    }


def test_far_is_a_ratio():
    outside = Outside()
    outside.note("tokens", 100.0, 90.0)
    outside.note("tokens", 50.0, 10.0)
    assert outside.sentences()[0].startswith(
        "tokens: asked up to 50, measured up to 10, 5.00 times"
    )
