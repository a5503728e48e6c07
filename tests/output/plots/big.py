"""Runs of a thousand ranks, without simulating them."""

import polars as pl

from rankscope.compare.comparison import Comparison
from rankscope.compare.stages import compare
from rankscope.model.options import Options
from rankscope.model.tables import PER_RANK
from rankscope.store.tables import LoadedTables, RunTables
from tests.support import Stored


def multiplied(job: Stored, times: int) -> Comparison:
    """`job` with all its ranks `times` times, numbered on, on hosts of eight."""
    frames = job.analysis().tables
    ranks = frames.ranks.height

    def more(frame: pl.DataFrame) -> pl.DataFrame:
        return pl.concat(
            [frame.with_columns(pl.col("rank") + ranks * copy) for copy in range(times)]
        )

    many = more(frames.ranks).with_columns(
        host=pl.format("node{}", pl.col("rank") // 8), world_size=pl.lit(ranks * times, pl.Int64)
    )
    tables = {"reports": frames.reports, "ranks": many, "problems": frames.problems} | {
        name: more(frames.table(name))
        for name in ("iterations", "measures", "collectives", "exposed")
    }
    tables |= {name: frames.table(name) for name in PER_RANK if name not in tables}
    return compare(RunTables(frames.name, LoadedTables(tables)), Options())
