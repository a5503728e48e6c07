"""The two sentences of a verdict, by its class.

The first one says who or what is slow, when, by how much, in which phase, and why; the second one
what fixing it would save, what else there is, and what limits the verdict.
"""

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import polars as pl

from rankscope.judge.causes.counters import network_words
from rankscope.judge.causes.registry import findings_sentence
from rankscope.judge.inputs import VerdictInputs
from rankscope.judge.judgement import Fast, Judgement, fast_ranks, holders
from rankscope.judge.levels import HALF, LARGE_TRANSFER, LEAST_GAIN, MOST, MUCH
from rankscope.judge.phrases import also_together, when, who, whole_hosts
from rankscope.model.kinds import Phase, VerdictKind
from rankscope.model.results import Verdict
from rankscope.util.wording import (
    MOST_LISTED,
    agreeing,
    counted,
    duration,
    ms,
    percent,
    ranks_text,
    span,
)

Sentence = Callable[[Verdict, Judgement], str]
"""A verdict without its sentence, and what it rests on → the sentence."""


def sentence(verdict: Verdict, judged: Judgement) -> str:
    """The sentence of a verdict.

    Raises:
        LookupError: its class has no entry in SENTENCES.
    """
    if verdict.kind not in SENTENCES:
        raise LookupError(f"verdict class {verdict.kind!r}: no entry in {__name__}.SENTENCES")
    return SENTENCES[verdict.kind](verdict, judged)


def _when(verdict: Verdict, inputs: VerdictInputs, *, exactly: bool = False) -> str:
    count, of_captures = len(inputs.numbers), inputs.run.of_captures
    return when(verdict, count, of_captures=of_captures, exactly=exactly)


def _straggler(verdict: Verdict, judged: Judgement) -> str:
    inputs, excess_ns = judged.inputs, verdict.excess_ns or 0
    one = len(verdict.hosts or verdict.ranks) == 1
    name = who(verdict.ranks, inputs.hosts, verdict.hosts)
    if inputs.run.missing_ranks:
        reported = counted(inputs.run.ranks, "rank")
        name = f"Of the {reported} with a report, {name[0].lower()}{name[1:]}"
    compared = "the median rank" + " then" * (len(verdict.iterations) < len(inputs.numbers))
    if verdict.kind is VerdictKind.TRANSIENT:
        cells = inputs.excess.cells(verdict.ranks, verdict.iterations)
        most = float(np.nanmax(inputs.excess.total[cells]))
        compared += f" (up to {ms(most)})" * (HALF * most > excess_ns)
    return (
        f"{name} {'is' if one else 'are'} slow {_when(verdict, inputs, exactly=True)}: "
        f"{'it needs' if one else 'they need'} {ms(excess_ns)} more {inputs.excess.metric} than "
        f"{compared}{_mostly(verdict)}. Fixing {'it' if one else 'them'} would save "
        f"{_gain(verdict, inputs)}{_further_clauses(verdict, judged)}."
    )


def _gain(verdict: Verdict, inputs: VerdictInputs) -> str:
    """`at most 120.0 ms, 2.9 % of the time (4.1 s)`."""
    bound = "at most " if verdict.gain_is_bound else ""
    return (
        f"{bound}{ms(verdict.gain_ns or 0)}, {percent(verdict.gain or 0)} of the time "
        f"({duration(inputs.total_ns)})"
    )


def _mostly(verdict: Verdict) -> str:
    """`, 90 % of it in load (the device idles longer)`: in which phase, and why."""
    inside, share = findings_sentence(verdict.findings), verdict.cause_share
    phase = "" if verdict.cause is None else f", {percent(share)} of it in {verdict.cause}"
    return phase + (f" ({inside})" if inside else "")


def _further_clauses(verdict: Verdict, judged: Judgement, *, costs: bool = True) -> str:
    """Clauses: other slow ranks, the cost of all imbalance, and what weakens the verdict."""
    bound, inputs = "at most " if verdict.gain_is_bound else "", judged.inputs
    clauses = also_clauses(verdict, inputs, verdict.ranks)
    if costs:
        clauses.append(f"all imbalance together costs {bound}{percent(verdict.gain_all or 0)}")
    least = max((1 - MOST) * judged.everything_ns, LEAST_GAIN * inputs.total_ns)
    if costs and judged.left_ns >= least:
        left = percent(judged.left_ns / inputs.total_ns)
        clauses.append(f"after these fixes it still costs {bound}{left}")
    clauses += _reservations(verdict, judged)
    return "".join(f"; {each}" for each in clauses)


def _held_up(inputs: VerdictInputs, least: float) -> Iterator[str]:
    """Clauses on communication that holds up all ranks for at least a share of the time."""
    transfer, unmatched = inputs.exposed_transfer_ns or 0, inputs.unmatched_ns or 0
    if transfer >= least * inputs.total_ns:
        yield f"exposed transfers take {percent(transfer / inputs.total_ns)}"
    if unmatched >= least * inputs.total_ns:
        yield (
            f"communication that was not matched across ranks takes "
            f"{percent(unmatched / inputs.total_ns)}, and who waits in it is unknown"
        )


def _reservations(verdict: Verdict, judged: Judgement) -> Iterator[str]:
    """Clauses that qualify the verdict."""
    inputs = judged.inputs
    missing, roles = inputs.run.missing_ranks, [*inputs.role_of.values()]
    named = [inputs.role_of[rank] for rank in verdict.ranks]
    if len(named) > 1 and any(2 * named.count(role) == roles.count(role) for role in {*named}):
        yield "they are half of the ranks of their role: the others may as well be unusually fast"
    yield from _held_up(inputs, LARGE_TRANSFER)
    if verdict.cause == Phase.LOAD and inputs.run.ends_alone:
        yield (
            "where iterations begin is unknown, so load is all that the host does between them, "
            "such as logging"
        )
    played, count = judged.prices.played, len(inputs.numbers)
    if missing:
        yield (
            f"{counted(len(missing), 'rank')} of the job ({span(missing, MOST_LISTED)}) "
            f"{agreeing(len(missing), 'has', 'have')} no report, and may be slower"
        )
    elif judged.why_bound is not None:
        yield f"{judged.why_bound}, so gains are upper bounds"
    elif played < count:
        yield f"gains are estimated from {played} of the iterations"


def _structural(verdict: Verdict, judged: Judgement) -> str:
    inputs = judged.inputs
    ranks = verdict.more_work_ranks
    name = ranks_text(ranks, MOST_LISTED).capitalize()
    which = f" (role {verdict.roles[0]!r})" if verdict.roles else ""
    compared = "the median role" if verdict.roles else "the others"
    return (
        f"{name}{which} {agreeing(len(ranks), 'is', 'are')} given more work than {compared} "
        f"{_when(verdict, inputs)}: it takes {ms(verdict.excess_ns or 0)}{_mostly(verdict)}; no "
        f"rank is to blame. Giving all ranks the same would save {_gain(verdict, inputs)}"
        f"{_further_clauses(verdict, judged)}."
    )


def _network(verdict: Verdict, judged: Judgement) -> str:
    """Transfers take long, though none takes longer than usual."""
    inputs = judged.inputs
    known = (inputs.unmatched_ns or 0) < MUCH * inputs.total_ns
    return (
        f"No rank is {'late' if known else 'known to be late'}, and yet "
        f"{'the network' if known else 'communication'} holds all ranks up for "
        f"{ms((verdict.gain_ns or 0) / len(inputs.numbers))} an iteration: "
        f"{'; '.join(_held_up(inputs, MUCH))}{_bandwidth(inputs) if known else ''}. Without that "
        f"the run would save {_gain(verdict, inputs)}."
    )


def _bandwidth(inputs: VerdictInputs) -> str:
    """The collective that takes most time, and its bus bandwidth where sizes are known."""
    rows = inputs.collectives()
    if rows is None or rows.is_empty():
        return ""
    key = ["communicator", "operation"]
    time = pl.col("transfer_ns") * pl.col("count")
    most = (
        rows.group_by(key)
        .agg(time=time.sum(), bandwidth=(pl.col("bus_bandwidth") * time).sum() / time.sum())
        .sort("time", *key, descending=[True, False, False])
        .row(0, named=True)
    )
    speed = f" at {most['bandwidth'] / 1e9:.3g} GB/s bus bandwidth" if most["bandwidth"] else ""
    where = f" on {most['communicator']}" * (rows["communicator"].n_unique() > 1)
    return f", most in {most['operation']}{where}{speed}"


def _communication(verdict: Verdict, judged: Judgement) -> str:
    inputs = judged.inputs
    slow = judged.prices.slow
    if slow is None or judged.main != "transfer":
        return _network(verdict, judged)
    first = slow.slow.row(0, named=True)
    member_hosts = sorted({str(inputs.hosts.get(rank)) for rank in first["members"]})
    place = (
        f", all on {member_hosts[0]}"
        if len(member_hosts) == 1 < len({*inputs.hosts.values()})
        else ""
    )
    group_count = slow.slow["group"].n_unique()
    more = "" if group_count == 1 else f", one of {group_count} slow ones,"
    adapter_words = network_words(
        inputs.tables, {*first["members"]}, {*first["iterations"]}, inputs.numbers, inputs.hosts
    )
    adapters = f"; the network adapters of its hosts {adapter_words}" if adapter_words else ""
    return (
        f"The transfer is slow: {first['operation']} on {first['label']} "
        f"({counted(len(first['members']), 'member')}{place}){more} takes "
        f"{ms(first['transfer_ns'])} once all ranks have arrived, usually {ms(first['usual_ns'])}, "
        f"{_when(verdict, inputs)}{adapters}. At the usual speed the run would "
        f"save {_gain(verdict, inputs)}{_further_clauses(verdict, judged)}."
    )


def _rotating(verdict: Verdict, judged: Judgement) -> str:
    inputs, clauses = judged.inputs, _further_clauses(verdict, judged, costs=False)
    if inputs.story.loaders_bind:
        return (
            "No rank in particular is slow, but loading is slow on all: they wait for data where "
            "no rank holds them up, and one whose queue is empty holds up the others. Faster "
            f"loading would save {_gain(verdict, inputs)}{clauses}."
        )
    phase = "" if verdict.cause is None else f", mostly in {verdict.cause}"
    subject = (
        f"No rank in particular is slow: {counted(len(holders(judged)), 'rank')}"
        if verdict.leading is None
        else "No rank is slow beyond chance, though "
        + ranks_text(verdict.leading.ranks, MOST_LISTED)
    )
    return (
        f"{subject} hold most of what imbalance costs, each in other iterations{phase}. Without "
        f"imbalance the run would save {_gain(verdict, inputs)}{clauses}."
    )


def also_clauses(verdict: Verdict, inputs: VerdictInputs, named: tuple[int, ...]) -> list[str]:
    """Other slow ranks, as clauses; `named` are those that the sentence is about."""
    sentences = also_together(verdict.also, inputs.hosts, named)
    return [each[0].lower() + each[1:] for each in sentences]


def they_need_less(inputs: VerdictInputs, fast: Fast) -> str:
    """`rank 2 needs 1.46 ms less work`."""
    hosts = whole_hosts(fast.ranks, inputs.hosts)
    name = who(fast.ranks, inputs.hosts, hosts)
    needs = agreeing(len(hosts or fast.ranks), "needs", "need")
    return f"{name[0].lower()}{name[1:]} {needs} {ms(fast.less_ns)} less {inputs.excess.metric}"


def _balanced(verdict: Verdict, judged: Judgement) -> str:
    inputs = judged.inputs
    over = counted(len(inputs.numbers), "iteration")
    ranks = counted(len(inputs.excess.ranks), "rank")
    bound = "at most " if verdict.gain_is_bound else ""
    cost = f"{bound}{percent(verdict.gain_all or 0)}"
    unsaid = (verdict.gain_all or 0) < LEAST_GAIN or verdict.costless_ranks
    beyond = "" if unsaid else "no rank is slow beyond chance; "
    clauses = [*_held_up(inputs, MUCH)]
    if (fast := fast_ranks(judged)) is not None:
        clauses.append(
            f"{they_need_less(inputs, fast)} than the others, and if all needed as little the "
            f"run would save {bound}{percent(fast.gain_ns / inputs.total_ns)}"
        )
    details = "".join(f"; {each}" for each in clauses)
    return (
        f"Balanced: over {over} of {ranks}, {beyond}all imbalance together costs {cost} of the "
        f"time{details}."
    )


SENTENCES: Mapping[VerdictKind, Sentence] = {
    VerdictKind.BALANCED: _balanced,
    VerdictKind.PERSISTENT: _straggler,
    VerdictKind.TRANSIENT: _straggler,
    VerdictKind.PERIODIC: _straggler,
    VerdictKind.ROTATING: _rotating,
    VerdictKind.STRUCTURAL: _structural,
    VerdictKind.COMMUNICATION: _communication,
}
"""An inconclusive verdict brings its own sentence."""
