"""The collectives of some iterations are matched as those of all are."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rankscope.match.communication import RunCollectives
from tests.support import Stored, mostly_nightly

KEY = ["rank", "iteration", "place", "communicator", "operation", "ordinal"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "ranks", "roles"),
    mostly_nightly(
        [("pipeline", 8, "pp=4,dp=2"), ("buckets", 4, None), ("tensor_parallel", 8, None)]
    ),
)
def test_of_some_iterations_as_of_all(
    stored: Callable[..., Stored], name: str, ranks: int, roles: str | None
) -> None:
    comparison = stored(name, ranks).analysis(roles=roles)
    numbers = comparison.selection.numbers[3:5]
    one, other = (
        waited.part(numbers).sort(KEY)
        for waited in (
            comparison.collectives(numbers),
            RunCollectives(comparison.scope, comparison.roles.links).calls()[1],
        )
    )
    assert one.drop("instance").equals(other.drop("instance"))
    assert one["instance"].rank("dense").equals(other["instance"].rank("dense"))
    assert one.height


def test_a_replay_releases_the_calls(stored: Callable[..., Stored]) -> None:
    """There is no room for both; who asks for the calls again gets equal ones."""
    comparison = stored("buckets").analysis()
    collectives = RunCollectives(comparison.scope, [])
    before = collectives.calls()[1].instances
    waits = collectives.waits().by_rank
    assert collectives.replay(comparison.rows(all_iterations=True)) is not None
    assert collectives._calls is None
    assert collectives.calls()[1].instances.equals(before)
    assert collectives.waits().by_rank.equals(waits)
