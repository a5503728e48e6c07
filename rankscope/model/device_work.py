"""Work of a report's devices: in memory, or left in the report."""

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple, Protocol

import polars as pl
from msgspec import field

from rankscope.model.events import Events, InMemoryEvents
from rankscope.model.schema import DEVICE_KINDS, conform, empty

SYNC_CALLS = pl.Schema(dict.fromkeys(("process", "thread", "start", "end"), pl.Int64()))
"""API calls that held their thread until the device was done, a row a call."""


UNRECORDED = pl.Schema({"process": pl.Int64(), "launch": pl.Int64()})
"""Launches (ns) of kernels without a record of when they ran, a row a kernel."""


class DeviceClock(NamedTuple):
    """How wrong the device's clock was; times are on the host's clock since."""

    early_ns: int = 0  # below 0: late
    fast: float = 0.0  # its seconds per second of the host, less one
    since_ns: int = 0  # where a fast clock is right


class DeviceWork(Events, Protocol):
    """DEVICE_WORK in the order of the starts, and how reading it goes."""

    def first_look(self) -> Iterator[pl.DataFrame]:
        """Iterate once, in any order; reading other properties first costs another pass."""

    @property
    def kinds(self) -> pl.DataFrame:
        """DEVICE_KINDS."""

    @property
    def rows(self) -> int:
        """How many rows were read, those of launches included."""

    @property
    def broken(self) -> int:
        """How many were left out, for they had no time or no owner."""

    @property
    def sync_calls(self) -> pl.DataFrame:
        """SYNC_CALLS of all processes, in any order."""

    @property
    def unrecorded(self) -> pl.DataFrame:
        """UNRECORDED; these kernels are not among the rows."""

    @property
    def moved(self) -> dict[int, DeviceClock]:
        """Process → the wrong clock from which its times are moved."""

    @property
    def unread(self) -> tuple[str, ...]:
        """Parts of the report whose layout is not known."""


class InMemoryWork(InMemoryEvents, frozen=True, dict=True):
    """Work in memory."""

    rows: int = 0
    broken: int = 0
    unread: tuple[str, ...] = ()
    sync_calls: pl.DataFrame = field(default_factory=lambda: empty(SYNC_CALLS))
    unrecorded: pl.DataFrame = field(default_factory=lambda: empty(UNRECORDED))
    moved: dict[int, DeviceClock] = field(default_factory=dict)

    @cached_property
    def kinds(self) -> pl.DataFrame:
        """DEVICE_KINDS."""
        return device_kinds(self.whole)

    def first_look(self) -> Iterator[pl.DataFrame]:
        """The rows of `parts`."""
        return self.parts()


def device_kinds(work: pl.DataFrame) -> pl.DataFrame:
    """DEVICE_KINDS of rows that have its columns."""
    alike = [name for name in DEVICE_KINDS if name != "end"]
    return conform(work.group_by(alike).agg(pl.col("end").max()), DEVICE_KINDS)
