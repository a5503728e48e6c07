"""The judge of verdicts finds what is wrong in an answer, and lets right ones pass."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bench.scenes import Truth, faulty, rights, totals
from tests.jobs import SCENES, Scene

ANSWER: dict[str, Any] = {
    "run": {"iterations": {"first": 1, "last": 39, "excluded_warmup": [0]}},
}


@pytest.fixture(scope="module")
def scene() -> Scene:
    return SCENES["slow_gpu"].make(4, 0)


@pytest.fixture(scope="module")
def truth(scene: Scene, tmp_path_factory: pytest.TempPathFactory) -> Truth:
    return Truth(scene.job, tmp_path_factory.mktemp("truth") / "truth.json")


def judged(scene: Scene, truth: Truth, **verdict: Any) -> dict[str, Any]:
    """The judgement of a right answer in which some keys were changed."""
    (slow,) = scene.answer.culprits[0].ranks
    gain = truth.healing([slow], [*range(1, 40)])
    right = {
        "class": "persistent",
        "ranks": [slow],
        "hosts": [],
        "cause": "backward",
        "gain": gain,
        "gain_all": gain + 0.01,
        "sentence": f"Rank {slow} is slow in 39 of 39 iterations.",
        "also": [],
    }
    named = (right | verdict)["ranks"]
    picks = {"picks": [{"rank": rank} for rank in {slow, *named, 0}]}
    return rights(scene, ANSWER | {"verdict": right | verdict}, picks, truth)


def test_a_right_answer_passes(scene: Scene, truth: Truth) -> None:
    result = judged(scene, truth)
    assert not faulty(result)
    assert result["gain_right"] is result["phase_right"] is True
    assert totals([result])[1]


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ({"class": "transient"}, "class_right"),
        ({"cause": "load"}, "phase_right"),
        ({"gain": 0.03}, "gain_right"),
        ({"gain": None}, "gain_right"),
        ({"ranks": [], "class": "balanced", "sentence": "Balanced."}, "rank_right"),
    ],
)
def test_what_is_wrong_is_found(
    scene: Scene, truth: Truth, wrong: dict[str, Any], right: str
) -> None:
    result = judged(scene, truth, **wrong)
    assert result[right] is False
    assert faulty(result)
    assert not totals([result])[1]


def test_innocents_are_found_in_ranks_hosts_and_also(scene: Scene, truth: Truth) -> None:
    (slow,) = scene.answer.culprits[0].ranks
    other = (slow + 2) % 4  # on the other machine
    host = scene.job.host_of(other)
    also = {"class": "transient", "ranks": [other], "hosts": []}
    for wrong in ({"ranks": [slow, other]}, {"hosts": [host]}, {"also": [also]}):
        assert judged(scene, truth, **wrong)["accused"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"sentence": "Rank 77 is slow."},
        {"sentence": "Ranks 0, 1, 2 and 3 are slow."},
        {"class": "balanced", "gain_all": 0.2},
        {"gain_all": 0.01},
        {"gain": 0.004},
    ],
)
def test_broken_invariants_are_found(scene: Scene, truth: Truth, wrong: dict[str, Any]) -> None:
    assert judged(scene, truth, **wrong)["broken"]
