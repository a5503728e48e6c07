"""Flags: which rank stands out in which iteration, and in which phase. See METHOD.md#verdict."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import polars as pl

from rankscope.model.metrics import PHASE_METRICS, column_of

LEAST_EXCESS = 0.05
"""Share of the iteration that an excess must pass to matter."""

LEAST_Z = 3.5
"""Modified z that an excess must pass to stand out (Iglewicz and Hoaglin)."""

MAD_FLOOR = 0.005
"""The MAD counts as at least this share of the median: it can be 0."""

AROUND = 7
"""Length of the window, in iterations, over which the rank's usual excess is taken."""

ROBUST = 1.4826
"""MAD → standard deviation of a normal distribution."""

CLEARLY = 5.0
"""Standard deviations of the noise that no rank exceeds by chance, however many ranks there are."""

FEW_RANKS = 4
"""With fewer ranks of a role, their spread says nothing, and a bootstrap interval decides."""

RESAMPLES = 1000
"""Samples of a bootstrap."""


def flag(wide: pl.DataFrame, metric: str, residual_ns: int = 0) -> pl.DataFrame:
    """Every rank and iteration with its excess, and whether it stands out.

    An excess over the role's median in that iteration is flagged where it exceeds 5 % of the
    iteration and its modified z exceeds 3.5, against the rank's own history or against its role
    in that iteration. In a role of fewer than 4 ranks it is flagged against its own history, or
    where the bootstrap interval of the rank's mean excess lies above 5 % of the iteration. See
    METHOD.md#verdict.

    Args:
        wide: rank, role, iteration, `<metric>_ns`.
        metric: `work`, or a phase where work is unknown.
        residual_ns: of the clocks; a smaller excess is not flagged.

    Returns:
        rank, role, iteration, excess_ns (null where unknown), sudden_ns (the excess over the
        rank's own in the iterations around), length_ns (the role's median iteration), flagged,
        clear (flagged for a sudden excess that noise does not explain), cause (phase with the
        largest excess, where flagged) and cause_excess_ns.
    """
    phases = [name for name in PHASE_METRICS if column_of(name) in wide.columns]
    role = ["role", "iteration"]
    value = pl.col(column_of(metric))
    frame = wide.sort("rank", "iteration").with_columns(
        excess_ns=value - lower_median(value).over(role),
        length_ns=lower_median(pl.col("iteration_ns")).over(role),
        members=value.count().over(role),
        **{
            f"{name}_excess": pl.col(column_of(name))
            - lower_median(pl.col(column_of(name))).over(role)
            for name in phases
        },
    )
    frame = frame.with_columns(sudden_ns=_sudden(pl.col("excess_ns")).over("rank"))
    matters = (pl.col("excess_ns") > LEAST_EXCESS * pl.col("length_ns")) & (
        pl.col("excess_ns") > residual_ns
    )
    own = modified_z(value, ["rank"]) > LEAST_Z
    others = modified_z(value, role) > LEAST_Z
    few = frame.filter(pl.col("members") < FEW_RANKS)
    surely = pl.col("rank").is_in(surely_slow(few))
    stands_out = own | pl.when(pl.col("members") < FEW_RANKS).then(surely).otherwise(others)
    excesses = [pl.col(f"{name}_excess") for name in phases]
    largest = pl.max_horizontal(excesses)
    # Where no phase is known, all time is `other`, and that is no cause.
    phases_known = pl.any_horizontal(
        pl.col(column_of(name)).is_not_null() for name in phases if name != "other"
    )
    return (
        frame.with_columns(
            flagged=(matters & (stands_out | _beyond_noise())).fill_null(False), largest=largest
        )
        .with_columns(
            clear=(pl.col("flagged") & _beyond_noise()).fill_null(False),
            cause=pl.when(pl.col("flagged") & phases_known).then(
                pl.coalesce(
                    pl.when(pl.col(f"{name}_excess") == largest).then(pl.lit(name))
                    for name in phases
                )
            ),
            cause_excess_ns=pl.when("flagged").then("largest"),
        )
        .select(
            "rank",
            "role",
            "iteration",
            "excess_ns",
            "sudden_ns",
            "length_ns",
            "flagged",
            "clear",
            "cause",
            "cause_excess_ns",
            *(f"{name}_excess" for name in phases),
        )
    )


def _sudden(excess: pl.Expr) -> pl.Expr:
    """The excess over the rank's running median, which leaves slow changes of speed out."""
    return excess - excess.rolling_median(AROUND, min_samples=1, center=True)


def _beyond_noise() -> pl.Expr:
    """Whether a sudden excess exceeds 5 % of the iteration and the noise.

    The noise is that of all ranks and iterations together.
    """
    sudden = pl.col("sudden_ns")
    noise = pl.max_horizontal(
        ROBUST * (sudden - sudden.median()).abs().median(), MAD_FLOOR * pl.col("length_ns")
    )
    little = LEAST_EXCESS * pl.col("length_ns")
    # where all ranks vary much, the extreme ones prove nothing
    return (sudden > little) & (sudden > CLEARLY * noise) & (noise < little)


def summed(values: pl.Series) -> int:
    """The sum; 0 of an empty series."""
    return int(values.sum() or 0)


def lower_median(value: pl.Expr) -> pl.Expr:
    """The median; the lower of the middle two of an even count."""
    return value.quantile(0.5, "lower").cast(pl.Int64)


def modified_z(value: pl.Expr, over: list[str]) -> pl.Expr:
    """0.6745 (x - median) / MAD, within groups or over all rows; MAD_FLOOR limits the MAD."""
    middle = value.median().over(over) if over else value.median()
    off = (value - middle).abs().median()
    spread = off.over(over) if over else off
    return 0.6745 * (value - middle) / pl.max_horizontal(spread, MAD_FLOOR * middle.abs(), 1.0)


def surely_slow(frame: pl.DataFrame) -> list[int]:
    """Ranks whose mean excess lies above 5 % of the iteration, ascending.

    In 97.5 % of the bootstrap samples, and by the normal bound corrected for the number of ranks.

    Args:
        frame: rank, excess_ns, length_ns.
    """
    draw = np.random.default_rng(0)
    slow = []
    ranks = max(frame["rank"].n_unique(), 1)
    strict = NormalDist().inv_cdf(1 - 0.025 / ranks)  # one of many ranks is slow by chance
    for (rank,), rows in frame.partition_by("rank", as_dict=True).items():
        share = (rows["excess_ns"] / rows["length_ns"]).drop_nulls().to_numpy()
        if len(share) < 2:
            continue
        sample = draw.choice(share, size=(RESAMPLES, len(share))).mean(axis=1)
        bound = share.mean() - strict * share.std(ddof=1) / np.sqrt(len(share))
        if min(np.quantile(sample, 0.025), bound) > LEAST_EXCESS:
            slow.append(int(rank))
    return sorted(slow)
