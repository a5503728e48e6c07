"""The answer of a fleet: its hardware, its suspects, and what to check first.

See METHOD.md#fleet.
"""

import numpy as np
import polars as pl
from msgspec import Struct

from rankscope.history.fleet.collect import Collected
from rankscope.history.fleet.pieces import appearances
from rankscope.history.fleet.rates import shrunken
from rankscope.history.fleet.sentences import KINDS, Suspect, next_step, sentence
from rankscope.history.fleet.suspects import LEAST_GUILTY, judged
from rankscope.history.fleet.trend import follows, since, trend
from rankscope.model.reports import RunWarning
from rankscope.util.wording import agreeing, counted

HARDWARE = pl.Schema(
    {
        "kind": pl.String,  # host | gpu | nic
        "id": pl.String,
        "host": pl.String,  # that it was in last
        "slot": pl.String,  # of a GPU
        "name": pl.String,  # model
        "runs": pl.Int64,  # in which it was compared
        "guilty": pl.Int64,
        "rate": pl.Float64,  # of guilty iterations, shrunken
        "low": pl.Float64,
        "high": pl.Float64,
        "p": pl.Float64,  # corrected
        "cost_ns": pl.Int64,  # time of all ranks together
        "suspect": pl.Boolean,
        "trend": pl.String,  # worse | better | steady; null where unknown
        "since_ns": pl.Int64,  # start of the first guilty run, where earlier ones were innocent
        "follows": pl.String,  # card | slot; null where nothing moved
        "cause": pl.String,  # phase that costs most
    }
)
"""A row per piece of hardware: suspects first, then those that cost most."""

RATES = pl.Schema({"rate": pl.Float64(), "low": pl.Float64(), "high": pl.Float64()})
KEY = pl.Schema({"kind": pl.String(), "id": pl.String()})

SUSPECTS_ONLY = ("trend", "since_ns", "follows")
"""Columns that only suspects have."""

PARTS = 2**30
"""Shares of iterations are rounded to whole PARTS, whose sum is the same on every computer."""


class Fleet(Struct, frozen=True):
    """The conclusions of many runs about hardware.

    `runs`: RUNS. `hardware`: HARDWARE. `rows`: APPEARANCES. `suspects`: the one to check first
    comes first.
    """

    runs: pl.DataFrame
    hardware: pl.DataFrame
    rows: pl.DataFrame
    suspects: tuple[Suspect, ...]
    sentence: str
    next: str
    problems: tuple[RunWarning, ...]


def fleet_of(collected: Collected) -> Fleet:
    """Judges the hardware that many runs ran on."""
    runs = collected.runs
    rows = appearances(runs, collected.evidence)
    judgement = judged(rows)
    table = _hardware(runs, rows, judgement.pieces, judgement.suspects)
    suspects = tuple(
        Suspect(**{name: row[name] for name in Suspect.__struct_fields__})
        for row in table.filter("suspect").iter_rows(named=True)
    )
    compared = rows["run"].n_unique()
    problems = list(collected.problems)
    unknown = collected.evidence.filter(pl.col("gpu").is_null())["run"].n_unique()
    if unknown:
        problems.append(
            RunWarning(
                "gpu-unknown",
                f"{unknown} of {counted(runs.height, 'run')} {agreeing(unknown, 'does', 'do')} not "
                "say which GPU each rank used: there a "
                "slow GPU shows only as its host; trace CUDA with a newer nsys (the PyTorch "
                "profiler does not record it), or ingest the reports again with --rebuild if an "
                "older rankscope read them",
            )
        )
    pieces = table["kind"].value_counts()
    return Fleet(
        runs=runs,
        hardware=table,
        rows=rows,
        suspects=suspects,
        sentence=sentence(suspects, compared, runs.height - compared, dict(pieces.iter_rows())),
        next=next_step(suspects, compared, any(table["guilty"]), _confined(rows, suspects)),
        problems=tuple(problems),
    )


def _hardware(
    runs: pl.DataFrame,
    rows: pl.DataFrame,
    odds: pl.DataFrame,
    suspects: tuple[tuple[str, str], ...],
) -> pl.DataFrame:
    """HARDWARE of all pieces.

    Args:
        runs: RUNS.
        rows: APPEARANCES.
        odds: `Judged.pieces`.
        suspects: kind and id of each; a suspected slot marks its host.
    """
    slots = dict(id_.rsplit(" ", 1) for kind, id_ in suspects if kind == "slot")
    named = {("host", host) for host in slots} | {each for each in suspects if each[0] != "slot"}
    real = rows.filter(pl.col("kind").is_in([*KINDS])).sort("order", maintain_order=True)
    pieces = real.group_by("kind", "id", maintain_order=True).agg(
        pl.col("host").last(),
        pl.col("slot").last(),
        pl.col("name").drop_nulls().last(),
        pl.len().cast(pl.Int64).alias("runs"),
        pl.col("guilty").sum().cast(pl.Int64),
        (pl.col("guilt") * PARTS).round().cast(pl.Int64).sum() / PARTS,
        pl.col("cost_ns").sum(),
        pl.col("cause").sort_by("cost_ns", descending=True).first(),
    )
    parts = [pl.DataFrame(schema=[*pieces.schema.items(), *RATES.items()])]
    for part in pieces.partition_by("kind", maintain_order=True):
        columns = shrunken(part["guilt"].to_numpy(), part["runs"].to_numpy().astype(np.float64))
        parts.append(
            part.with_columns(
                pl.Series(name, column) for name, column in zip(RATES, columns, strict=True)
            )
        )
    marked = pl.DataFrame(sorted(named), schema=KEY, orient="row").with_columns(suspect=True)
    table = (
        pl.concat(parts)
        .join(odds.select("kind", "id", "p"), on=["kind", "id"], how="left")
        .join(marked, on=["kind", "id"], how="left")
        .with_columns(
            pl.col("suspect").fill_null(value=False),
            slot=pl.when(pl.col("kind") == "host")
            .then(pl.col("id").replace_strict(slots, default=None, return_dtype=pl.String))
            .otherwise("slot"),
        )
    )
    suspected = table.filter("suspect").select("kind", "id").rows()
    more = _of_suspects(suspected, real, slots, dict(runs.select("run", "start_ns").iter_rows()))
    return (
        table.join(more, on=["kind", "id"], how="left")
        .sort(
            ["suspect", "cost_ns", "guilty", "kind", "id"],
            descending=[True, True, True, False, False],
        )
        .select(HARDWARE.names())
        .cast(HARDWARE)
    )


def _of_suspects(
    suspects: list[tuple[str, str]],
    rows: pl.DataFrame,
    slots: dict[str, str],
    starts: dict[str, int | None],
) -> pl.DataFrame:
    """KEY and SUSPECTS_ONLY of the suspects.

    Args:
        suspects: kind and id of each.
        rows: APPEARANCES of hosts, GPUs and adapters, by time.
        slots: host → its slot that is suspected.
        starts: run → its start, ns.
    """
    suspected: list[dict[str, object]] = []
    for kind, id_ in suspects:
        piece_rows = rows.filter(kind=kind, id=id_)
        in_time = (
            piece_rows["run"].replace_strict(starts, return_dtype=pl.Int64).is_not_null().all()
        )
        has_slot = kind == "host" and id_ in slots
        suspected.append(
            {
                "kind": kind,
                "id": id_,
                "trend": trend(piece_rows) if in_time else None,
                "since_ns": since(piece_rows, starts) if in_time else None,
                "follows": "slot" if has_slot else follows(piece_rows, rows),
            }
        )
    return pl.DataFrame(suspected, schema={name: HARDWARE[name] for name in (*KEY, *SUSPECTS_ONLY)})


def _confined(rows: pl.DataFrame, suspects: tuple[Suspect, ...]) -> int | None:
    """The rank of the first suspect in all runs, if hardly any other hardware had that rank."""
    if not suspects:
        return None
    first = suspects[0]
    places = rows.filter(kind=first.kind, id=first.id).select("run", "host")
    ranks = rows.filter(pl.col("kind") == "rank", "guilty").join(
        places, on=["run", "host"], how="semi"
    )
    numbers = ranks["rank"].unique()
    if len(numbers) != 1:
        return None
    elsewhere = rows.filter(kind="rank", rank=numbers[0]).join(
        places, on=["run", "host"], how="anti"
    )
    return None if elsewhere.height >= LEAST_GUILTY else int(numbers[0])
