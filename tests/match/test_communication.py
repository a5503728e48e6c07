"""The collectives of some iterations are matched as those of all are."""

import pytest

from rankscope.match.communication import match_again, match_calls, waits_of
from tests.match.worlds import instances_of
from tests.support import MakeStored, mostly_nightly

KEY = ["rank", "iteration", "place", "communicator", "operation", "ordinal"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "ranks", "roles"),
    mostly_nightly(
        [("pipeline", 8, "pp=4,dp=2"), ("buckets", 4, None), ("tensor_parallel", 8, None)]
    ),
)
def test_of_some_iterations_as_of_all(
    stored: MakeStored, name: str, ranks: int, roles: str | None
) -> None:
    comparison = stored(name, ranks).analysis(roles=roles)
    numbers = comparison.selection.numbers[3:5]
    one, other = (
        waited.part(numbers).sort(KEY)
        for waited in (
            comparison.collectives(numbers),
            match_calls(comparison.scope, comparison.roles.links).waited,
        )
    )
    assert one.drop("instance").equals(other.drop("instance"))
    assert one["instance"].rank("dense").equals(other["instance"].rank("dense"))
    assert one.height


def test_all_calls_matched_again_are_the_same(stored: MakeStored) -> None:
    """Who lets them go gets equal ones later."""
    comparison = stored("buckets").analysis()
    first = match_calls(comparison.scope, [])
    again = match_again(comparison.scope, first.matching, [])
    assert instances_of(again.waited).equals(instances_of(first.waited))
    waits = [waits_of(comparison.scope, calls).by_rank for calls in (first, again)]
    assert waits[0].equals(waits[1])
