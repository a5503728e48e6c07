"""Names of API calls → whether a call held its thread until the device was done."""

import polars as pl

SYNCHRONISING = "|".join(
    (
        r"Synchronize|^ur(QueueFinish|EventWait)",  # of any API
        r"^(cu(da)?|hip)Memcpy",  # with pageable memory, even an asynchronous copy waits
        r"^(cuda|hip)Free(Host)?(_|$)",
        r"^cuMemFree(Host)?(_|$)",
    )
)
"""Pattern of the calls of the runtime and the driver that wait for the device.

`cudaFree` waits for all work of the device. `cudaStreamWaitEvent` makes a stream wait, not the
thread, and `cudaEventQuery` returns at once: they do not fit. An export adds suffixes (`_v3020`).
"""

ASYNCHRONOUS = r"^(cu(da)?|hip)Memcpy.*Async"
"""Pattern of the copies that usually return before the copy is done."""

LASTING_NS = 20_000
"""An asynchronous copy waited for the device if its call took at least this long (ns)."""


HELD_NS = 1_000_000
"""Any other call waited for the device if it took at least this long (ns): a full launch queue."""


def synchronises() -> pl.Expr:
    """Whether an API call held its thread until the device was done; null where unknown.

    Reads the columns `name` (String), `start` and `end` (ns) of the calls.
    """
    return pl.col("end") - pl.col("start") >= waits_from()


def waits_from() -> pl.Expr:
    """The length (ns) from which on an API call waited for the device.

    Null where the name is. Reads `name`.
    """
    name = pl.col("name")
    least = pl.when(name.str.contains(ASYNCHRONOUS)).then(LASTING_NS).otherwise(0)
    waits = name.str.contains(SYNCHRONISING)
    return pl.when(waits).then(least).when(~waits).then(HELD_NS).cast(pl.Int64)
