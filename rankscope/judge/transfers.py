"""Collectives whose transfer takes longer than usual. See METHOD.md#verdict."""

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from msgspec import Struct

from rankscope.judge.levels import HALF, MUCH, NOISE
from rankscope.judge.timing import quick_part
from rankscope.match.point_to_point import TRANSFERS
from rankscope.match.roles import ALIKE
from rankscope.model.intervals import Floats
from rankscope.util.numbers import ROBUST

KIND = ("operation", "on_host", "alike", "calls")
OF_GROUP = (*KIND, "group")
CELL = (*OF_GROUP, "iteration")
"""The columns that calls have in common which are compared, those of a communicator among them, and
those that are judged together."""


class SlowTransfers(Struct, frozen=True, eq=False):
    """Transfer time of collectives beyond the usual.

    `saved`: ns by instance. `numbers`: the selected iterations that are looked at. `most`: the sum
    in each of them, interpolated in the others. `slow`: group, operation, label, members (ranks),
    on_host (whether hosts carry it out), excess_ns (sum over the iterations), iterations, and
    medians of these: per_iteration (calls), transfer_ns and usual_ns (of a mean call), and sized
    (whether sizes are known); a row per communicator and operation, most excess first.
    """

    saved: Floats
    numbers: tuple[int, ...]
    most: Floats
    slow: pl.DataFrame


def slow_transfers(
    instances: pl.DataFrame,
    service_ns: Floats,
    numbers: Sequence[int],
    groups: pl.DataFrame,
    hosts: Mapping[int, str | None],
    spread: Sequence[int] | None = None,
) -> SlowTransfers | None:
    """Transfers of the selected iterations that are slow; None where there are none.

    Single calls vary: a time slice more or less makes one in five some times as long. So all calls
    of a communicator and operation in an iteration are judged together.

    Args:
        instances: group, operation, iteration, ordinal, transfer, bytes (null where unknown) and
            hidden: whether the transfer may have begun before.
        service_ns: what each took from the moment when all were ready; NaN where unknown.
        numbers: the selected iterations.
        groups: group, label, members (list of ranks), on_host and ends_error_ns (how far the ends
            of its members scatter; null where they need not end together).
        hosts: of the ranks, None where unknown. Sends across hosts are compared with each other, if
            several pairs of ranks send so.
        spread: of a sample, the iterations that stand for those without instances; where these are
            all or None, nothing is slow in an iteration without instances.
    """
    service, kinds = pl.col("service"), _kinds(groups, hosts)
    # members that do not end together may be of several groups: some arrive when others are through
    apart = pl.col("ends_error_ns") > MUCH * pl.col("transfer")
    rows = (
        instances.with_row_index("instance")
        .with_columns(
            pl.col("group").cast(pl.Int64),
            pl.col("operation").cast(pl.String),
            service=pl.Series(service_ns).fill_nan(None),
        )
        .filter(pl.col("iteration").is_in([*numbers]) & service.is_not_null())
        .join(
            kinds.select("group", "on_host", "alike", "merged", "size_of_group", "ends_error_ns"),
            on="group",
            maintain_order="left",
        )
        .with_columns(
            service=pl.when(pl.col("merged") | apart)
            .then(pl.max_horizontal(service, "transfer"))
            .otherwise(service),
            size=pl.coalesce(
                (pl.col("bytes").cast(pl.Float64).log() / np.log1p(ALIKE)).round(),
                -1.0 - pl.col("ordinal").cast(pl.Float64),
            ),
            calls=pl.when(pl.col("bytes").is_null())
            .then(pl.col("ordinal").max().over("group", "operation"))
            .otherwise(0),
        )
    )
    rows = _with_usual(rows)
    cells = _slow_cells(rows)
    above = (service - pl.col("usual")).clip(0)
    slow = rows.join(cells, on=CELL, maintain_order="left").with_columns(
        excess=above / above.mean().over(CELL) * (pl.col("took") - pl.col("usually"))
    )
    if slow.is_empty():
        return None
    saved = np.zeros(len(service_ns))
    saved[slow["instance"].to_numpy()] = slow["excess"].to_numpy()
    column = np.searchsorted(numbers, slow["iteration"].to_numpy())
    most = np.bincount(column, slow["excess"].to_numpy(), len(numbers)).astype(np.float64)
    seen = np.ones(len(numbers), dtype=np.bool_)
    if spread is not None and len(spread) < len(numbers):
        seen = np.isin(numbers, rows["iteration"].unique())
        even = np.flatnonzero(seen & np.isin(numbers, spread))
        if len(even):
            most = np.where(seen, most, np.interp(np.arange(len(numbers)), even, most[even]))
    summary = (
        slow.group_by("group", "operation")
        .agg(
            excess_ns=pl.col("excess").sum().round().cast(pl.Int64),
            per_iteration=pl.col("per_iteration").median().round().cast(pl.Int64),
            transfer_ns=pl.col("took").median().round().cast(pl.Int64),
            usual_ns=pl.col("usually").median().round().cast(pl.Int64),
            iterations=pl.col("iteration").unique().sort(),
            sized=pl.col("bytes").is_not_null().all(),
        )
        .sort("excess_ns", "group", "operation", descending=[True, False, False])
        .filter(pl.col("excess_ns") >= HALF * pl.col("excess_ns").max())
        .join(
            kinds.select("group", "label", "members", "on_host"), on="group", maintain_order="left"
        )
    )
    return SlowTransfers(saved, (*np.array(numbers)[seen].tolist(),), most, summary)


def _kinds(groups: pl.DataFrame, hosts: Mapping[int, str | None]) -> pl.DataFrame:
    """The groups with size_of_group, alike, and merged: whether they may be several groups."""
    groups = groups.cast({"group": pl.Int64}).with_columns(
        pl.col("label").fill_null(""), size_of_group=pl.col("members").list.len()
    )
    # groups of one label make the same calls; the larger ones may be several that end together
    size, several = pl.col("size_of_group"), pl.col("members").n_unique().over("label") > 1
    places = [{hosts.get(rank) for rank in members} for members in groups["members"].to_list()]
    across = pl.Series([None not in each and len(each) > 1 for each in places], dtype=pl.Boolean)
    sends = pl.col("label").str.contains(TRANSFERS) & across
    apart = sends & (pl.col("members").filter(sends).n_unique() > 1)
    return groups.with_columns(
        alike=pl.when(apart)
        .then(pl.lit("across hosts"))
        .when(several)
        .then("label")
        .otherwise(size.cast(pl.String)),
        merged=size > size.min().over("label"),
    )


def _lower_median(name: str, where: pl.Expr) -> pl.Expr:
    """Of the ranks, each with the value of its group; of groups of one size, of the groups."""
    value, ranks = (pl.col(each).filter(where) for each in (name, "size_of_group"))
    ranks = ranks.sort_by(value)
    return value.sort().filter(2 * ranks.cum_sum() >= ranks.sum()).first()


def _with_usual(rows: pl.DataFrame) -> pl.DataFrame:
    """The calls with quick, middle (what they usually take in their group) and usual (in all)."""
    key = [*KIND, "size"]
    # of a message that was under way before its receiver came, a part is seen
    mean = pl.col("service").filter(~pl.col("hidden")).mean()
    rows = rows.with_columns(mean=mean.over(*key, "group", "iteration"))
    quick = pl.col("took").map_batches(
        lambda took: pl.Series(quick_part(took.to_numpy())), return_dtype=pl.Boolean
    )
    took = rows.group_by(CELL).agg(took=pl.col("service").sum()).sort("iteration")
    took = took.select(*CELL, quick=quick.over(OF_GROUP))
    usually = pl.col("mean").filter("quick").median(), pl.col("mean").median()
    rows = rows.join(took, on=CELL, maintain_order="left").with_columns(
        middle=pl.coalesce(*usually).over(*key, "group")
    )
    once = pl.struct(*key, "group").is_first_distinct() & pl.col("middle").is_not_null()
    usual = _lower_median("middle", pl.col("once"))
    usual, of_size = usual.over(key), usual.over(*key, "size_of_group")
    # a larger group may as well be one, which takes longer than smaller ones
    usual = pl.when("merged").then(pl.max_horizontal(usual, of_size)).otherwise(usual)
    rows = rows.with_columns(once=once).with_columns(usual=usual).drop_nulls("usual")
    return rows.with_columns(pl.col("middle").fill_null(pl.col("usual")))


def _slow_cells(rows: pl.DataFrame) -> pl.DataFrame:
    """CELLs that take longer: per_iteration (calls), took and usually (ns, of a mean call)."""
    service = pl.col("service")
    of_usual = pl.col("usual").sum().clip(1)
    # each call as much longer than it usually is there as all together
    evenly = service.sum() * (pl.col("middle") + 1) / (pl.col("middle") + 1).sum()
    return (
        rows.group_by(CELL)
        .agg(
            pl.col("size_of_group").first(),
            pl.col("quick").first(),
            per_iteration=pl.len(),
            took=service.mean(),
            usually=pl.col("usual").mean(),
            ratio=service.sum() / of_usual,
            error=((service - evenly) ** 2).sum().sqrt() / of_usual,
        )
        .with_columns(level=pl.col("ratio").filter("quick").median().over(OF_GROUP))
        .with_columns(
            expected=_lower_median("level", pl.lit(value=True)).over(KIND).clip(1),
            noise=pl.max_horizontal(
                ROBUST
                * (pl.col("ratio") - pl.col("level")).abs().filter("quick").median().over(KIND),
                pl.col("error").median().over(KIND),
            ),
        )
        .filter(
            pl.col("ratio") - pl.col("expected")
            > pl.max_horizontal(HALF * pl.col("expected"), NOISE * pl.col("noise"))
        )
        .with_columns(pl.col("usually") * pl.col("expected"))
    )
