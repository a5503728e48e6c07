"""A dozen jobs in which something was planted, and what the verdict must say of each.

A row is read as: in this scene of the forge, that was planted; the verdict says who, how often, in
which phase, and by how much. What stands here comes from the scenes (`tests/forge/scenes.py`).
"""

from typing import Any

import pytest

from rankscope.model.results import Verdict
from tests.support import MS, MakeStored, mostly_slow

EXAMPLES: list[tuple[str, int, dict[str, Any], str, float | None]] = [
    # scene, ranks, its parameters, the verdict, planted ms
    ("plain", 4, {}, "balanced", None),
    ("planted", 4, {"kind": "persistent", "where": "load"}, "persistent: rank 3 in load", 8),
    ("planted", 4, {"kind": "transient", "where": "load"}, "transient: rank 3 in load", 8),
    ("planted", 4, {"kind": "rotating", "where": "load"}, "rotating: in load", None),
    ("planted", 4, {"where": "device"}, "persistent: rank 3 in backward", None),
    ("autograd", 4, {}, "periodic, every 5th: rank 3 in backward", 6),
    ("buckets", 4, {}, "periodic, every 5th: rank 1 in forward", 5),
    ("tensor_parallel", 4, {}, "periodic, every 5th: rank 1 in forward", 8),
    ("load_between", 4, {}, "periodic, every 7th: rank 2 in load", 12),
    ("host_only", 4, {}, "periodic, every 7th: rank 1 in backward", 15),
    ("mpi_like", 4, {}, "periodic, every 7th: rank 1 in load", 15),
    ("late_capture", 4, {}, "periodic, every 7th: rank 0 in forward", 8),
    ("slow_host", 8, {}, "persistent: host node1 in load", 8),
    ("pipeline", 8, {}, "persistent: rank 6 in forward", 8),
    ("slow_link", 8, {}, "communication: in exposed_communication", None),
]


def short(verdict: Verdict) -> str:
    """A verdict in a few words; a host stands for its ranks."""
    often = f", every {verdict.period}th" if verdict.period else ""
    who = [f"host {host}" for host in verdict.hosts] or [f"rank {rank}" for rank in verdict.ranks]
    where = [f"in {verdict.cause}"] if verdict.cause else []
    return ": ".join(part for part in (verdict.kind + often, " ".join(who + where)) if part)


@pytest.mark.parametrize(
    ("scene", "ranks", "parameters", "says", "planted_ms"),
    mostly_slow(EXAMPLES, 8),
    ids=[f"{name} {' '.join(parameters.values())}" for name, _, parameters, *_ in EXAMPLES],
)
def test_the_verdict_says_what_was_planted(
    stored: MakeStored,
    scene: str,
    ranks: int,
    parameters: dict[str, Any],
    says: str,
    planted_ms: float | None,
) -> None:
    verdict = stored(scene, ranks=ranks, **parameters).analysis().verdict
    assert short(verdict) == says, verdict.sentence
    if planted_ms is not None:
        assert verdict.excess_ns == pytest.approx(planted_ms * MS, rel=0.15)
