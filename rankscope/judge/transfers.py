"""Collectives whose transfer takes longer than usual. See METHOD.md#verdict."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from rankscope.judge.levels import HALF, NOISE, SIZE_STEP
from rankscope.match.point_to_point import OPERATION
from rankscope.util.numbers import ROBUST
from rankscope.util.robust import Floats


@dataclass(frozen=True, slots=True, eq=False)
class SlowTransfers:
    """Transfer time of collectives beyond the usual.

    `saved`: ns by instance. `slow`: group, operation, label, members (ranks), excess_ns (sum
    over the iterations), transfer_ns and usual_ns (medians of the slow instances), iterations;
    a row per communicator and operation, most excess first. `spared`: ranks of the communicators of
    the same operations that are not slow.
    """

    saved: Floats
    slow: pl.DataFrame
    spared: frozenset[int]

    def pointed_at(self, hosts: dict[int, str | None]) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """The rank or the host that all slow communicators share, and no other: ranks, hosts.

        Nobody where there is a single slow communicator, or nothing that they alone share.
        """
        sets = [{*members} for members in self.slow["members"].to_list()]
        if len({frozenset(each) for each in sets}) < 2:
            return (), ()
        shared = set.intersection(*sets) - self.spared
        if len(shared) == 1:
            return tuple(shared), ()
        places = [{hosts.get(rank) for rank in each} for each in sets]
        common = set.intersection(*places) - {hosts.get(rank) for rank in self.spared} - {None}
        if len(common) != 1:
            return (), ()
        (name,) = common
        ranks = sorted(rank for rank, host in hosts.items() if host == name)
        return tuple(ranks), (str(name),)


def slow_transfers(
    instances: pl.DataFrame,
    service: Floats,
    numbers: list[int],
    members: dict[int, list[int]],
    labels: dict[int, str],
) -> SlowTransfers | None:
    """Transfers of the selected iterations that are slow; None where there are none.

    The usual transfer is the lower median over the communicators with as many members and calls,
    for messages of the same operation and size (or place in the iteration, where sizes are
    unknown), of each one's median.

    Args:
        instances: group, operation, iteration, ordinal, bytes (null where unknown).
        service: what each took from the moment when all were ready, ns; NaN where unknown.
        numbers: the selected iterations.
        members: group → its ranks.
        labels: group → the name of its communicator.
    """
    size = {group: len(ranks) for group, ranks in members.items()}
    rows = _beside_usual(
        instances.with_row_index("instance")
        .with_columns(
            pl.col("group").cast(pl.Int64),
            pl.col("operation").cast(pl.String),
            service=pl.Series(service).fill_nan(None),
        )
        .filter(
            pl.col("iteration").is_in(numbers)
            & pl.col("service").is_not_null()
            & (pl.col("operation") != OPERATION)
        )
        .with_columns(
            members=pl.col("group").replace_strict(size, default=0, return_dtype=pl.Int64),
            size=pl.coalesce(
                (pl.col("bytes").cast(pl.Float64).log() / np.log(SIZE_STEP)).round(),
                -1.0 - pl.col("ordinal").cast(pl.Float64),
            ),
            calls=pl.when(pl.col("bytes").is_null())
            .then(pl.col("ordinal").max().over("group", "operation"))
            .otherwise(0),
        )
    )
    beyond = pl.max_horizontal(HALF * pl.col("usual"), NOISE * pl.col("noise"))
    slow = rows.filter(pl.col("excess") > beyond)
    if slow.is_empty():
        return None
    saved = np.zeros(len(service))
    saved[slow["instance"].to_numpy()] = slow["excess"].to_numpy()
    per = _by_communicator(slow, members, labels)
    same = rows.filter(pl.col("operation").is_in(per["operation"].unique().implode()))
    others = {*same["group"]} - {*slow["group"]}
    spared = frozenset(rank for group in others for rank in members.get(group, ()))
    return SlowTransfers(saved, per, spared)


def _beside_usual(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with usual, noise and excess (ns) of transfers like each.

    Args:
        rows: group, operation, members and calls (counts), size (a class) and service.
    """
    key = ["operation", "members", "calls", "size"]
    of_group = rows.group_by(*key, "group").agg(middle=pl.col("service").median())
    usual = of_group.group_by(key).agg(usual=pl.col("middle").quantile(0.5, "lower"))
    rows = rows.join(of_group, on=[*key, "group"]).join(usual, on=key)
    noise = rows.group_by(key).agg(
        noise=ROBUST * (pl.col("service") - pl.col("middle")).abs().median()
    )
    return rows.join(noise, on=key).with_columns(excess=pl.col("service") - pl.col("usual"))


def _by_communicator(
    slow: pl.DataFrame, members: dict[int, list[int]], labels: dict[int, str]
) -> pl.DataFrame:
    """`SlowTransfers.slow`.

    Args:
        slow: slow instances: group, operation, iteration, service, usual and excess.
        members: group → its ranks.
        labels: group → the name of its communicator.
    """
    per = (
        slow.group_by("group", "operation")
        .agg(
            excess_ns=pl.col("excess").sum().round().cast(pl.Int64),
            transfer_ns=pl.col("service").median().round().cast(pl.Int64),
            usual_ns=pl.col("usual").median().round().cast(pl.Int64),
            iterations=pl.col("iteration").unique().sort(),
        )
        .sort("excess_ns", "group", "operation", descending=[True, False, False])
    )
    named = pl.DataFrame(
        {
            "group": [*members],
            "members": [*members.values()],
            "label": [labels.get(g, "") for g in members],
        }
    )
    per = per.join(named, on="group", maintain_order="left")
    return per.filter(pl.col("excess_ns") >= HALF * int(per["excess_ns"][0]))
