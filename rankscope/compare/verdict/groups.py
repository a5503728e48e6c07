"""Rules that name no rank: a role with more work, a slow link, changing ranks, or nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rankscope.compare.verdict.decision import LEAST_GAIN, MUCH_GAIN, Component
from rankscope.compare.verdict.preconditions import inconclusive
from rankscope.compare.verdict.stragglers import largest_phase
from rankscope.model.kinds import VerdictKind
from rankscope.model.results import Verdict

if TYPE_CHECKING:
    from rankscope.compare.verdict.inputs import VerdictInputs


def heavy_role(inputs: VerdictInputs) -> Verdict | None:
    """The role that is given most work, where balancing the roles would save most."""
    if inputs.decision.main is not Component.ROLE or inputs.components.role is None:
        return None
    excess, healed = inputs.excess, inputs.components.role
    cost = np.array([healed[excess.roles == role].sum() for role in range(len(excess.role_names))])
    heaviest = int(cost.argmax())
    members = np.flatnonzero(excess.roles == heaviest)
    if len(members) == 1:
        rank = int(excess.ranks[members[0]])
        return inconclusive(
            f"rank {rank} needs more {excess.metric} than the others, but it is the only one of "
            "its role: it may be slow, or have more to do by design",
            "profile several replicas of the job, or say with --roles which ranks do the same work",
        )
    per = healed[members[0]].sum(axis=1)
    hit = per > LEAST_GAIN * np.nan_to_num(excess.length[members[0]])
    mean = round(float(per[hit].mean())) if hit.any() else 0
    typical = float(np.nanmedian(excess.length[members[0]]))
    cause, share = largest_phase(inputs, healed[members])
    gain = inputs.decision.gains[Component.ROLE]
    return Verdict(
        kind=VerdictKind.STRUCTURAL,
        roles=(excess.role_names[heaviest],),
        more_work_ranks=tuple(int(rank) for rank in excess.ranks[members]),
        cause=cause,
        cause_share=share,
        excess_ns=mean,
        excess=mean / typical if typical else None,
        iterations=tuple(int(number) for number in excess.numbers[hit]),
        iterations_share=float(hit.mean()),
        gain_ns=gain,
        gain=gain / inputs.total_ns,
        next="balance the work of the roles: layers per stage, embedding and loss",
    )


def slow_link(inputs: VerdictInputs) -> Verdict | None:
    """Collectives that take longer than usual once all ranks have arrived."""
    slow = inputs.transfers()
    if inputs.decision.main is not Component.TRANSFER or slow is None:
        return None
    first = slow.slow.row(0, named=True)
    ranks, hosts = slow.pointed_at(inputs.hosts)
    gain = inputs.decision.gains[Component.TRANSFER]
    excess_ns = first["transfer_ns"] - first["usual_ns"]
    typical = float(np.nanmedian(inputs.excess.lengths))
    return Verdict(
        kind=VerdictKind.COMMUNICATION,
        ranks=ranks,
        hosts=hosts,
        cause="exposed_communication",
        cause_share=1.0,
        excess_ns=excess_ns,
        excess=excess_ns / typical if typical else None,
        iterations=tuple(first["iterations"]),
        iterations_share=len(first["iterations"]) / len(inputs.numbers),
        gain_ns=gain,
        gain=gain / inputs.total_ns,
        next="compare the links of the members: rankscope imbalance --by collective, and record "
        "NIC counters in the next capture: nsys profile --nic-metrics=true",
    )


def rotating(inputs: VerdictInputs) -> Verdict | None:
    """Imbalance that costs enough, on changing ranks."""
    decision = inputs.decision
    much = decision.everything_ns >= MUCH_GAIN * inputs.total_ns
    if decision.main is not Component.EVENTS and not much:
        return None
    excess = inputs.excess
    healed = inputs.components.everything
    amount = np.nan_to_num(healed.sum(axis=2))
    slowest = amount.max(axis=0)
    hit = slowest > LEAST_GAIN * excess.lengths
    cause, share = largest_phase(inputs, healed)
    return Verdict(
        kind=VerdictKind.ROTATING,
        cause=cause,
        cause_share=share,
        excess_ns=round(float(slowest[hit].mean())) if hit.any() else None,
        iterations=tuple(int(number) for number in excess.numbers[hit]),
        iterations_share=float(hit.mean()),
        gain_ns=decision.everything_ns,
        gain=decision.everything_ns / inputs.total_ns,
        next="compare the input and the hosts of the ranks: sequence lengths, batch contents, "
        "storage, other load",
    )


def balanced(inputs: VerdictInputs) -> Verdict:
    """No other rule has found anything."""
    del inputs
    return Verdict(
        kind=VerdictKind.BALANCED,
        next="look for time that all ranks lose in the same way: rankscope imbalance --by phase",
    )
