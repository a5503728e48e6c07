"""Gloo's collectives in a Kineto trace: work of other threads → waits of the thread that called.

gloo runs a collective on a thread of its own. The caller continues (DDP reduces gradients during
backward) until it needs the result, and that wait has no range. It is the rest of the collective
after the caller's last operator, and after the last begin or end of a range: no range begins or
ends while its thread waits. An operator may wait as well: `wait_tensor` (DTensor), and what
encloses it or a call of a collective (hooks of FSDP, within a node of autograd).
"""

import polars as pl

from rankscope.model.schema import GLOO, OPERATORS

_CALL = "^c10d::"
_OF_DEVICE = r"^\w*ccl:"
_WAIT = "^_?c10d_functional::wait_tensor$"


def waits_on_callers(ranges: pl.DataFrame) -> pl.DataFrame:
    """`ranges` with each gloo collective as a wait on the thread that called it.

    The waits of a thread are disjoint. Those for collectives are in the order of the calls, which
    is the same on every rank; the wait for one that operators hide completely is empty. A send or
    receive ends when its caller has waited for it, which may be after later ones.

    Args:
        ranges: frame of SCHEMAS[RANGE].

    Returns:
        The same columns, with the `payload` of RANGES where there are collectives.
    """
    is_gloo = pl.col("name").str.starts_with("gloo:") & (pl.col("domain") == "")
    collectives = ranges.filter(is_gloo).sort("start")
    if collectives.is_empty():
        return ranges
    operators = ranges.filter(pl.col("domain") == OPERATORS).sort("start")
    calls = _calls(operators, ranges.filter(pl.col("name").str.contains(_OF_DEVICE)))
    if calls.is_empty():
        return ranges
    of_script = ranges.filter((pl.col("domain") == "") & ~is_gloo)
    computing, waiting = _computing_and_waiting(operators)
    bounds = pl.concat([of_script.select(computing.columns), waiting])
    edges = [bounds.with_columns(start=x, end=x) for x in ("start", "end")]
    busy = (
        pl.concat([computing, *edges])
        .sort("start")
        .with_columns(reached=pl.col("end").cum_max().over("process", "thread"))
        .select("process", caller="thread", before="start", reached="reached")
    )
    waits = (
        _with_calls(collectives, calls)
        .sort("end")
        .join_asof(
            busy,
            left_on="end",
            right_on="before",
            by=["process", "caller"],
            strategy="backward",
            check_sortedness=False,
        )
        .sort("start")
    )
    key = ["process", "caller"]
    in_order = pl.when(~pl.col("name").str.contains("^gloo:(send|recv)")).then("end")
    waits = waits.with_columns(end=pl.coalesce(in_order.cum_max().over(key), "end"))
    waits = waits.sort("end", maintain_order=True)
    ready = pl.max_horizontal("start", "reached", pl.col("end").shift(1).over(key))
    waits = waits.with_columns(
        start=pl.min_horizontal(ready, "end"), thread="caller", domain=pl.lit(GLOO)
    ).with_columns(payload=pl.col("start") - pl.col("called"))
    return pl.concat(
        [ranges.filter(~is_gloo), waits.select(*ranges.columns, "payload")], how="diagonal"
    )


def _calls(operators: pl.DataFrame, of_device: pl.DataFrame) -> pl.DataFrame:
    """start, process and caller of the calls in `operators` that launch nothing on the device."""
    key = ["process", "thread"]
    calls = operators.filter(pl.col("name").str.contains(_CALL)).join_asof(
        of_device.sort("start").select(*key, launches="start"),
        left_on="start",
        right_on="launches",
        by=key,
        strategy="forward",
        check_sortedness=False,
    )
    by_host = (pl.col("launches") >= pl.col("end")).fill_null(True)
    return calls.filter(by_host).select("start", "process", caller="thread")


def _computing_and_waiting(operators: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Process to end of sorted `operators` that cannot and can wait for a collective."""
    key = ["process", "thread"]
    inner = operators.filter(pl.col("name").str.contains(f"{_CALL}|{_WAIT}"))
    found = operators.filter(~pl.col("name").str.contains(_CALL)).select(*key, "start", "end")
    found = found.join_asof(
        inner.select(*key, inner="start"),
        left_on="start",
        right_on="inner",
        by=key,
        strategy="forward",
        check_sortedness=False,
    )
    waits = (pl.col("inner") < pl.col("end")).fill_null(False)
    return found.filter(~waits).drop("inner"), found.filter(waits).drop("inner")


def _with_calls(collectives: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """`collectives` with `caller` and `called`: the thread and the start of the call.

    gloo starts collectives in the order of the calls, some only after earlier ones. Where calls and
    collectives of a process are not equally many, the last call before each of them counts.
    """
    numbered = pl.int_range(pl.len()).over("process").alias("nth")
    many = pl.len().over("process").alias("many")
    in_order = calls.rename({"start": "called"}).with_columns(numbered, many)
    latest = calls.with_columns(latest="start", latest_caller="caller").drop("caller")
    own = pl.col("called") <= pl.col("start")
    return (
        collectives.with_columns(numbered, many)
        .join(in_order, on=["process", "nth", "many"], how="left", maintain_order="left")
        .join_asof(latest, on="start", by="process", strategy="backward", check_sortedness=False)
        .with_columns(
            called=pl.when(own).then("called").otherwise(pl.coalesce("latest", "start")),
            caller=pl.when(own).then("caller").otherwise(pl.coalesce("latest_caller", "thread")),
        )
    )
