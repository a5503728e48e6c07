"""The ordered list of rules that give a run its verdict. See METHOD.md#verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rankscope.judge import groups, hidden_waits, preconditions, stragglers
from rankscope.judge.healing import Prices
from rankscope.judge.inputs import VerdictInputs
from rankscope.judge.judgement import Judgement, decide
from rankscope.judge.sentences import also_clauses, sentence
from rankscope.model.kinds import VerdictKind
from rankscope.model.results import Verdict

Precondition = Callable[[VerdictInputs], Verdict | None]
"""Why nothing can be said of a run; None where something can."""

PRECONDITIONS: tuple[Precondition, ...] = (
    preconditions.single_rank,
    hidden_waits.unseen,
    preconditions.no_communication,
    preconditions.work_unknown,
    preconditions.no_time,
)
"""The first that is not met ends the search for a verdict."""

Rule = Callable[[Judgement], Verdict | None]
"""What is found in a run; None where the rule does not apply."""

RULES: tuple[Rule, ...] = (
    # what healing saves decides
    groups.whole_stage,
    stragglers.by_design_or_slow,
    stragglers.named,
    groups.heavy_role,
    groups.slow_link,
    groups.most_may_be_slow,
    groups.rotating,
    groups.undecided,
    # the ranks look alike
    hidden_waits.alike,
    preconditions.only_loading_known,
    preconditions.ranks_missing,
    preconditions.ranks_blind,
    preconditions.unlike_outside,
    groups.network,
    groups.balanced,
)
"""The first rule that finds something decides; the last one always does."""


def judge(inputs: VerdictInputs, prices: Prices | None = None) -> Verdict:
    """The verdict of the first rule that finds something, in words.

    Args:
        inputs: what is known of the run.
        prices: what healing saves; None: at most what the slowest ranks would be faster.
    """
    for each in PRECONDITIONS:
        if (unmet := each(inputs)) is not None:
            return unmet
    judged = decide(inputs, prices or Prices(inputs.excess))
    found = next(verdict for rule in RULES if (verdict := rule(judged)) is not None)
    if found.sentence and found.leading is None and found.gain_all_ns is None:
        return found
    total, count = inputs.total_ns, len(inputs.numbers)
    found = replace(
        found,
        gain_all_ns=judged.cost_ns,
        gain_all=judged.cost_ns / total,
        gain=None if found.gain_ns is None else found.gain_ns / total,
        iterations_share=len(found.iterations) / count if found.iterations else None,
        gain_is_bound=found.gain_is_bound or judged.prices.is_bound,
        costless_ranks=tuple(judged.costless),
        also=stragglers.others(judged) if found.kind is not VerdictKind.BALANCED else (),
    )
    if found.sentence:  # who leads is no more than that; others may be slow beyond chance
        clauses = "".join(f"; {each}" for each in also_clauses(found, inputs))
        return replace(found, sentence=f"{found.sentence.removesuffix('.')}{clauses}.")
    return replace(found, sentence=sentence(found, judged))
