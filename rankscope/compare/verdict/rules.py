"""The ordered list of rules that give a run its verdict. See METHOD.md#verdict.

To add a class: a member of `VerdictKind`, a rule in `RULES`, an entry in `SENTENCES`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rankscope.compare.verdict import groups, preconditions, stragglers
from rankscope.compare.verdict.inputs import VerdictInputs
from rankscope.compare.verdict.sentences import sentence
from rankscope.model.results import Verdict

Rule = Callable[[VerdictInputs], Verdict | None]
"""What is found in a run; None where the rule does not apply."""

RULES: tuple[Rule, ...] = (
    # nothing can be said
    preconditions.single_rank,
    preconditions.no_communication,
    preconditions.too_few_iterations,
    preconditions.work_unknown,
    # some ranks are slow
    stragglers.contention,
    stragglers.stragglers,
    groups.slow_group,
    groups.role_with_more_work,
    groups.rotating,
    # the ranks look alike
    preconditions.only_loading_known,
    preconditions.no_peers,
    preconditions.ranks_missing,
    preconditions.ranks_blind,
    groups.balanced,
)
"""The first rule that finds something decides; the last one always does."""


def judge(inputs: VerdictInputs) -> Verdict:
    """The verdict of the first rule that finds something, in words."""
    found = next(verdict for rule in RULES if (verdict := rule(inputs)) is not None)
    return found if found.sentence else replace(found, sentence=sentence(found, inputs))
