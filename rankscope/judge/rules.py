"""The ordered list of rules that give a run its verdict. See METHOD.md#verdict.

To add a class: a member of `VerdictKind`, a rule in `RULES`, an entry in `SENTENCES`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rankscope.judge import groups, hidden_waits, preconditions, stragglers
from rankscope.judge.inputs import VerdictInputs
from rankscope.judge.sentences import also_clauses, sentence
from rankscope.model.kinds import VerdictKind
from rankscope.model.results import Verdict

Rule = Callable[[VerdictInputs], Verdict | None]
"""What is found in a run; None where the rule does not apply."""

RULES: tuple[Rule, ...] = (
    # nothing can be said
    preconditions.single_rank,
    hidden_waits.unseen,
    preconditions.no_communication,
    preconditions.work_unknown,
    preconditions.no_time,
    # what healing saves decides
    groups.whole_stage,
    stragglers.named,
    groups.heavy_role,
    groups.slow_link,
    groups.most_may_be_slow,
    groups.rotating,
    groups.undecided,
    # the ranks look alike
    preconditions.no_peers,
    hidden_waits.alike,
    preconditions.only_loading_known,
    preconditions.ranks_missing,
    preconditions.ranks_blind,
    groups.network,
    groups.balanced,
)
"""The first rule that finds something decides; the last one always does."""


def judge(inputs: VerdictInputs) -> Verdict:
    """The verdict of the first rule that finds something, in words."""
    found = next(verdict for rule in RULES if (verdict := rule(inputs)) is not None)
    if found.sentence and found.leading is None:
        return found
    total, decision = inputs.total_ns, inputs.decision
    found = replace(
        found,
        gain_all_ns=decision.everything_ns,
        gain_all=decision.everything_ns / total if total else None,
        gain_is_bound=inputs.prices.is_bound,
        costless_ranks=tuple(decision.costless),
        also=stragglers.others(inputs) if found.kind is not VerdictKind.BALANCED else (),
    )
    if found.sentence:  # who leads is no more than that; others may be slow beyond chance
        clauses = "".join(f"; {each}" for each in also_clauses(found))
        return replace(found, sentence=f"{found.sentence.removesuffix('.')}{clauses}.")
    return replace(found, sentence=sentence(found, inputs))
