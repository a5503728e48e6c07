"""Samples of Nsight Systems exports: the function that a thread was executing."""

import polars as pl

from rankscope.model.host_events import COLLECTING, Samples, Spans
from rankscope.model.intervals import Times
from rankscope.sources.columns.request import Columns
from rankscope.sources.nsys import python_samples
from rankscope.sources.nsys.common import Strings, without_nulls

SAMPLES, CHAINS = "COMPOSITE_EVENTS", "SAMPLING_CALLCHAINS"
SAMPLE = ["id", "start", "globalTid"]
FRAME = ["id", "symbol", "stackDepth"]

COLLECTOR = (
    r"^_?(Py_?)?gc_collect|^_?PyGC_Collect|^collect_generations$|^\w+_traverse$|^type_is_gc$"
    r"|^visit_(decref|reachable|move)$|^(subtract|update)_refs$|^(move|deduce)_unreachable$"
    r"|^untrack_(tuples|dicts)$"
)
"""Functions that only CPython's garbage collector runs, its own and those that visit objects.

A sample that has one in its stack collects garbage; stacks may be as short as one function."""

PYTHON = r"\.pyx?$"
"""Modules of Python frames, which name a function better than the interpreter's."""

INTERPRETER = r"^(lib)?python[\d.]*(so[\d.]*)?$"
"""Modules of the interpreter, in place of whose functions those of Python are shown."""

NEAR_NS = 10_000_000
"""A sample of Python at most this long (ns) before or after gives the Python function."""

MOST_SAMPLES = 25_000
"""Most samples whose stacks are read; of more, an even part, which has the same shares."""

ENOUGH = 16
"""Fewest pairs of samples from which the period is estimated."""

CLOSE = 0.1
"""The quantile of times between samples that is the period."""

UNRESOLVED = r"^(0x[0-9a-fA-F]+|\[.*\]|)$"
"""Symbols that are none."""


def samples(file: Columns, pool: Strings, spans: Spans) -> dict[int, Samples] | None:
    """The samples of some threads with their functions; None without the tables.

    The function is `COLLECTING` where the stack holds the garbage collector, else the innermost
    Python function, else the innermost function; where that is unresolved, its module. Where it is
    one of the interpreter and Python was sampled on its own, the nearest of those samples names it.
    """
    if not (file.has(SAMPLES, *SAMPLE) and file.has(CHAINS, *FRAME)):
        return None
    wanted = pl.concat(
        _of_threads(piece, spans)
        for piece in file.pieces(SAMPLES, [*SAMPLE, "cpuCycles"], only=("globalTid", [*spans]))
    ).sort("id")
    stride = max(1, -(-wanted.height // MOST_SAMPLES))
    periods = {
        thread: _period(wanted.filter(pl.col("globalTid") == thread)["start"], stride)
        for thread in spans
    }
    wanted = wanted.gather_every(stride)
    frames = _frames(file, pool, wanted["id"].to_numpy())
    named = wanted.join(frames, on="id", how="left", maintain_order="left").with_columns(
        pl.col("function").fill_null("")
    )
    named = _named_by_python(named, python_samples.functions(file, pool, spans))
    return {
        thread: Samples(own["start"].to_numpy(), own["function"], periods[thread])
        for thread in spans
        for own in [named.filter(pl.col("globalTid") == thread)]
    }


def _period(at: pl.Series, stride: int) -> int | None:
    """Time on the CPU that a sample stands for (ns), if one of `every` samples is kept.

    Samples that follow each other closely are those between which the thread ran all the time.
    """
    steps = at.sort().diff().drop_nulls()
    if len(steps) < ENOUGH:
        return None
    return int(steps.quantile(CLOSE) or 0) * stride or None


def _of_threads(piece: pl.DataFrame, spans: Spans) -> pl.DataFrame:
    """id, start and thread of the samples in the spans."""
    whole = without_nulls(piece, *SAMPLE).filter(pl.col("cpuCycles").fill_null(1) > 0)
    inside = pl.any_horizontal(
        pl.lit(False),
        *(
            (pl.col("globalTid") == thread) & pl.col("start").is_between(low, high, closed="left")
            for thread, (low, high) in spans.items()
        ),
    )
    return whole.filter(inside).select(SAMPLE)


def _named_by_python(samples: pl.DataFrame, python: pl.DataFrame) -> pl.DataFrame:
    """The samples, those in the interpreter with the Python function it was executing."""
    nearest = samples.sort("start").join_asof(
        python,
        on="start",
        by="globalTid",
        strategy="nearest",
        tolerance=NEAR_NS,
        check_sortedness=False,
    )
    function = pl.when("interpreted").then(pl.coalesce("python", "function")).otherwise("function")
    return nearest.with_columns(function=function)


def _frames(file: Columns, pool: Strings, ids: Times) -> pl.DataFrame:
    """id and function of each sample, and whether that is one of the interpreter."""
    described = {"function": pl.String, "interpreted": pl.Boolean, "rank": pl.Int8}
    known = pl.DataFrame(schema={"symbol": pl.Int64, "module": pl.Int64, **described})
    best = [pl.DataFrame(schema={"id": pl.Int64, "stackDepth": pl.Int64, **described})]
    if not len(ids):
        return best[0].select("id", "function", "interpreted")
    for piece in file.pieces(CHAINS, [*FRAME, "module"], only=("id", ids.tolist())):
        own = without_nulls(piece, *FRAME)
        pairs = own.select("symbol", "module").unique()
        fresh = pairs.join(known, on=["symbol", "module"], how="anti", nulls_equal=True)
        if not fresh.is_empty():
            known = pl.concat([known, _described(fresh, pool)])
        described_frames = own.join(known, on=["symbol", "module"], nulls_equal=True)
        # Of other frames only the innermost counts, which is nearly always of depth 0.
        described_frames = described_frames.filter(
            (pl.col("rank") < 2) | (pl.col("stackDepth") == 0)
        )
        best.append(_innermost(described_frames.select(best[0].columns)))
    return _innermost(pl.concat(best)).select("id", "function", "interpreted")


def _innermost(frames: pl.DataFrame) -> pl.DataFrame:
    return frames.sort("id", "rank", "stackDepth").unique("id", keep="first", maintain_order=True)


def _described(pairs: pl.DataFrame, pool: Strings) -> pl.DataFrame:
    """symbol, module, the name to show, and its rank: the lowest of a stack names the sample."""
    symbol, module = (pool.of(pairs[name]).fill_null("") for name in ("symbol", "module"))
    texts = pairs.with_columns(text=symbol, file=module.str.extract(r"([^/\\]*)$"))
    collects = pl.col("text").str.contains(COLLECTOR)
    python = pl.col("file").str.contains(PYTHON)
    return texts.select(
        "symbol",
        "module",
        function=pl.when(collects)
        .then(pl.lit(COLLECTING))
        .when(pl.col("text").str.contains(UNRESOLVED))
        .then("file")
        .otherwise("text"),
        interpreted=~collects & pl.col("file").str.contains(INTERPRETER),
        rank=pl.when(collects).then(0).when(python).then(1).otherwise(2).cast(pl.Int8),
    )
