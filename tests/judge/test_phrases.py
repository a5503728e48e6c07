"""What else is slow, in words."""

from dataclasses import replace

from rankscope.judge.phrases import also_sentence, also_together
from rankscope.model.kinds import VerdictKind
from rankscope.model.results import Also

HOSTS: dict[int, str | None] = {0: "node0", 12: "node1"}
SPIKE = Also(
    kind=VerdictKind.TRANSIENT,
    ranks=(12,),
    iterations=(20,),
    cause="load",
    excess_ns=5_000_000,
    gain_ns=4_000_000,
)
OFTEN = replace(SPIKE, kind=VerdictKind.PERIODIC, iterations=(3, 6, 9), period=3, cause="backward")
ZERO = replace(SPIKE, ranks=(0,))


def output(*found: Also, named: tuple[int, ...] = ()) -> list[str]:
    sentences = [also_sentence(each, HOSTS, 30, 100_000_000) for each in found]
    return also_together(sentences, HOSTS, named)


def test_a_rank_that_is_slow_in_two_ways_is_named_once() -> None:
    first, second = output(OFTEN, ZERO, SPIKE)
    assert first == (
        "Also rank 12 (node1) in every 3rd iteration (3, 6, 9): 5.00 ms more, mostly in backward, "
        "4.0 % of the time, and in iteration 20: 5.00 ms more, mostly in load, 4.0 % of the time"
    )
    assert second.startswith("Also rank 0 (node0) in iteration 20: ")


def test_the_rank_of_the_verdict_is_not_named_again() -> None:
    (only,) = output(SPIKE, named=(12,))
    assert only == "Also in iteration 20: 5.00 ms more, mostly in load, 4.0 % of the time"


def test_every_iteration_of_one_is_this_step() -> None:
    assert " in this step: " in also_sentence(SPIKE, HOSTS, 1, 100_000_000).sentence
