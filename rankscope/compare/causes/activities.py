"""What is in the phase that made a rank slow (method section 9, cause)."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from rankscope.compare.verdict.sentences import ms
from rankscope.model.results import Finding
from rankscope.util.sanitize import sanitized

LEAST_SHARE = 0.15
"""Share of the excess that a finding must explain to be told."""

MOST = 3

SAME = 0.02
"""Counts and sizes that differ by less are the same work."""

CLEARED = 0.5
"""Where kernels that no collective runs beside show less than this share of a kernel's excess, the
rest comes from competing with collectives for the device."""

ENOUGH = 50
"""Flagged iterations that are looked into."""

COLLECTION = "garbage collection"
GARBAGE = r"(?i)\bgc\b|gc\.collect|garbage"


def findings(
    activities: Callable[[list[int]], pl.DataFrame],
    roles: dict[int, str],
    flagged: pl.DataFrame,
    phase: str | None,
) -> tuple[Finding, ...]:
    """What explains most of the accused ranks' excess, largest first.

    Each activity's time is compared with the role's median (the lower of the middle two, as for the
    flags) in the same iteration; on a rank and iteration without it, it took no time.

    Args:
        activities: gives ACTIVITIES in some iterations.
        roles: rank → role.
        flagged: rank, iteration, excess_ns of the accused.
        phase: the cause; None looks at all phases.
    """
    flagged = flagged.filter(pl.col("iteration").is_in(_sample(flagged["iteration"]).implode()))
    total = int(flagged["excess_ns"].sum() or 0)
    here = activities(flagged["iteration"].unique().to_list())
    if phase is not None:
        here = here.filter(pl.col("phase") == phase)
    if total <= 0 or here.is_empty():
        return ()
    excess = _excess(here, roles, flagged.select("rank", "iteration"))
    large = pl.col("excess_total_ns") >= LEAST_SHARE * total
    lesser = ~large & (pl.col("kind") == "kernel") & (pl.col("excess_total_ns") > 0)
    amounts = [
        (row["kind"], row["name"], _suspect(row, phase), row["excess_total_ns"])
        for row in excess.filter(large).iter_rows(named=True)
    ] + [each for each in _together(excess.filter(lesser)) if each[3] >= LEAST_SHARE * total]
    # ranges lie around what the others tell, but a garbage collection says why
    amounts.sort(key=lambda each: (each[2] != COLLECTION, each[0] == "range", -each[3], each[1]))
    return tuple(
        Finding(
            kind=kind,
            name=name,
            excess_ns=round(amount / flagged.height),
            share=min(1.0, amount / total),
            suspect=suspect,
        )
        for kind, name, suspect, amount in amounts[:MOST]
    )


def _together(kernels: pl.DataFrame) -> list[tuple[str, str, str, float]]:
    """kind, name, suspect and excess of all that slowed in one way: each alone may be little."""
    amounts: dict[str, list[float]] = {}
    for row in kernels.iter_rows(named=True):
        amounts.setdefault(_suspect(row, None), []).append(row["excess_total_ns"])
    return [
        ("kernels", f"{len(each)} lesser kernels", suspect, sum(each))
        for suspect, each in amounts.items()
        if len(each) > 1
    ]


def finding_sentence(finding: Finding) -> str:
    """The finding in words."""
    amount, name = ms(finding.excess_ns), sanitized(finding.name)
    kernel = f"{name} take" if finding.kind == "kernels" else f"kernel {name} takes"
    return {
        "device": f"{kernel} {amount} longer for the same work: the device",
        "data": f"{kernel} {amount} longer, having more to do: the data",
        "contention": f"{kernel} {amount} longer, beside collectives that overlap it: "
        "contention, no cause of its own",
        "starving": f"the device idles {amount} longer, for the host launches late",
        "loader": f"the device idles {amount} longer, waiting for data",
        COLLECTION: f"{amount} of garbage collection ({name})",
        "copies": f"copies take {amount} longer",
        "range": f"range {name} takes {amount} longer",
    }[finding.suspect]


def _sample(iterations: pl.Series) -> pl.Series:
    """Enough of the iterations, evenly."""
    numbers = iterations.unique().sort()
    return numbers.gather_every(max(1, len(numbers) // ENOUGH))


def _excess(here: pl.DataFrame, roles: dict[int, str], accused: pl.DataFrame) -> pl.DataFrame:
    """kind, name, what the accused need more of it than their role, and what is usual there.

    `clear_excess_ns` is what they would need more if all their operations ran as those do that no
    collective runs beside: by time per block; null where no such run on both sides.
    """
    values = ["total_ns", "count", "size", "clear_ns", "clear_size"]
    key = ["rank", "iteration", "kind", "name"]
    summed = here.group_by(key).agg(pl.col(values).sum())
    names = summed.select("kind", "name").unique()
    # every rank and iteration that has activities at all, with every name: 0 where absent
    every = summed.select("rank", "iteration").unique().join(names, how="cross")
    role = pl.col("rank").replace_strict(roles, default=None, return_dtype=pl.String)
    group = ["role", "iteration", "kind", "name"]
    rate = pl.col("clear_ns") / pl.col("clear_size")
    # the lower of the middle two, as in flags: of two ranks the slow one is not half the usual

    def usual(name: str) -> pl.Expr:
        return pl.col(name).quantile(0.5, "lower").over(group)

    lump = pl.col("kind").is_in(["kernel", "range"]) & (pl.col("name") == "")
    return (
        every.join(summed, on=key, how="left")
        .filter(~lump)
        .with_columns(pl.col(values).fill_null(0), role=role)
        .with_columns(
            *(usual(name).alias(f"usual_{name}") for name in values[:3]),
            rate=pl.when(pl.col("clear_size") > 0).then(rate),
        )
        .with_columns(slower=pl.col("rate") - usual("rate"))
        .join(accused, on=["rank", "iteration"], how="semi")
        .group_by("kind", "name")
        .agg(
            *(
                (pl.col(name) - pl.col(f"usual_{name}")).sum().alias(f"excess_{name}")
                for name in values[:3]
            ),
            pl.col("usual_count", "usual_size").sum(),
            clear_excess_ns=(pl.col("slower").mean() * pl.col("size").sum()),
        )
    )


def _suspect(row: dict[str, float | None], phase: str | None) -> str:
    kind, name = str(row["kind"]), str(row["name"])
    if kind == "kernel":
        excess, clear = row["excess_total_ns"] or 0.0, row["clear_excess_ns"]
        if any(
            abs(row[f"excess_{value}"] or 0) > SAME * max(row[f"usual_{value}"] or 0, 1)
            for value in ("count", "size")
        ):
            return "data"
        return "contention" if clear is not None and clear < CLEARED * excess else "device"
    if kind == "idle":
        return "loader" if phase == "load" else "starving"
    if kind == "range":
        return COLLECTION if pl.Series([name]).str.contains(GARBAGE)[0] else "range"
    return "copies"
