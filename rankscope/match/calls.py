"""All calls of a run's collectives, gathered some ranks at a time, and laid out by instance.

Ranks of one communicator make the same calls, which differ in their times only. Operation,
iteration and ordinal are therefore kept once for all streams that share them, and calls are never
sorted across ranks: those of a communicator are a matrix with a row per rank.
"""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.match.communicators import EQUAL_SIZES, MATCHED, ROOTED, SPLITTABLE, STREAM
from rankscope.match.patterns import (
    UNMATCHED,
    Numbers,
    Pattern,
    Selected,
    Stream,
    common,
    lacking,
)
from rankscope.match.point_to_point import NAMES_PEERS, named_transfers
from rankscope.match.rank_axis import firsts
from rankscope.match.transfer_ends import paired_by_ends
from rankscope.model.arrays import distinct
from rankscope.model.kinds import POINT_TO_POINT
from rankscope.store.tables import LONG, SHORT, narrowed
from rankscope.util.threads import threaded

INSTANCE = ["group", "operation", "iteration", "ordinal"]
"""Columns that all calls of an instance share."""

OWN = ["rank", "gradient", "arrival_ns", "end_ns", "bytes"]
"""Columns that differ between the calls of an instance."""

COLUMNS = [*STREAM, "operation", "iteration", "ordinal", *OWN[1:], "start_ns"]
"""Columns of COLLECTIVES that are needed."""

REASONS = ("no partner", "some members lack it", "message sizes differ")
"""Reasons why a call belongs to no instance."""

STREAMS = pl.Schema(
    {
        "rank": pl.Int32(),
        "place": SHORT,
        "communicator": LONG,
        "first": pl.Int64(),  # the start of its first call
        "stream": pl.Int64(),
        "pattern": pl.Int64(),
    }
)
"""Columns of a part's streams."""

UNKNOWN_BYTES = int(np.iinfo(np.int64).min)
"""Placeholder for an unknown size."""

FAR_APART = 2**20
"""Widest span of a column that is packed as it is; wider columns are numbered, so that all
columns together fit into 63 bits."""


class Layout(NamedTuple):
    """The matched calls, their instances, UNMATCHED of others, `Matched.lost`, `.lacking`."""

    rows: pl.DataFrame
    shared: pl.DataFrame
    unmatched: pl.DataFrame
    lost: pl.DataFrame
    lacking: pl.DataFrame


class Arranged(NamedTuple):
    """The calls of a rank by stream: the order of its rows, and their pattern."""

    orders: list[Numbers]
    patterns: list[int]


class Calls:
    """Collects COLLECTIVES, some ranks at a time, and keeps the columns that matching needs."""

    def __init__(self, links: list[tuple[int, int]]) -> None:
        """`links`: pairs of ranks that send to each other."""
        self._links = links
        self._named: list[pl.DataFrame] = []  # sends and receives that name their peers
        self._sent: list[pl.DataFrame] = []  # others, of devices
        self._lost = [pl.DataFrame(schema={"iteration": pl.Int64, "lasted_ns": pl.Int64})]
        self._lacking = [pl.DataFrame(schema={"rank": pl.Int64, "iteration": pl.Int64})]
        self._others = 0  # calls that are never matched, such as sends
        self._stream_rows = [STREAMS.to_frame()]
        self._streams: list[Stream] = []
        self._columns: dict[str, list[NDArray[Any] | None]] = {name: [] for name in OWN[1:]}
        self._patterns: list[Pattern] = []
        self._alike: dict[tuple[int, ...], list[int]] = {}  # sums of a pattern → its numbers

    def add(self, part: pl.DataFrame) -> None:
        """Add all rows of some ranks."""
        operation = part["operation"]
        split = operation.is_in(MATCHED)
        self._others += int((~split).sum())
        if operation.is_in([ROOTED]).any():
            # which ranks they link is known from the other calls of their stream
            is_known = pl.col("operation").is_in(SPLITTABLE).any().over(STREAM)
            split &= part.select(is_known).to_series()
        sent = part.filter(operation.is_in([POINT_TO_POINT]))
        named = sent["communicator"].cast(pl.String).str.contains(NAMES_PEERS)
        self._named.append(sent.filter(named) if named.any() else sent.clear())
        self._sent.append(sent.filter(pl.col("place") == "device", ~named))
        rows = narrowed(part if split.all() else part.filter(split))
        if rows.height < part.height:
            self._lose(part.filter(~split))
        if rows.is_empty():
            return
        ranks = rows["rank"].to_numpy()
        if (np.diff(ranks) < 0).any():
            # DuckDB's threads hand over selected iterations of a rank in parts
            rows = rows.sort("rank", "iteration", maintain_order=True)
            ranks = rows["rank"].to_numpy()
        calls = [
            *(_codes(rows[name]) for name in (*STREAM[1:], "operation")),
            *(rows[name].to_numpy() for name in ("iteration", "ordinal")),
        ]
        known = {name: rows[name] for name in OWN[1:] if rows[name].null_count() < rows.height}
        values = {
            name: (each.fill_null(UNKNOWN_BYTES) if each.null_count() else each).to_numpy()
            for name, each in known.items()
        }
        starts = rows["start_ns"].to_numpy()
        kind_of = _places(rows["operation"], MATCHED)
        place, first = len(self._stream_rows) - 1, len(self._streams)
        previous_calls, arranged = calls, None
        heads, begins = [], []
        for low, high in pairwise([*firsts(ranks), len(ranks)]):
            rank_calls = [each[low:high] for each in calls]
            if arranged is None or not all(map(np.array_equal, rank_calls, previous_calls)):
                previous_calls, arranged = rank_calls, self._arranged(rank_calls, kind_of)
            heads.append([order[0] + low for order in arranged.orders])
            begins.append([starts[low:high][order].min() for order in arranged.orders])
            self._streams += [
                Stream(int(ranks[low]), place, slice(low, high), order, pattern)
                for order, pattern in zip(arranged.orders, arranged.patterns, strict=True)
            ]
        for name, parts in self._columns.items():
            parts.append(values.get(name))
        stream_rows = rows[np.concatenate(heads)].select(
            *STREAM,
            first=np.concatenate(begins),
            stream=np.arange(first, len(self._streams)),
            pattern=np.array([each.pattern for each in self._streams[first:]]),
        )
        self._stream_rows.append(stream_rows)

    def _arranged(self, calls: list[NDArray[Any]], kind_of: Numbers) -> Arranged:
        """The order of a rank's calls.

        Args:
            calls: STREAM without the rank, and CALL; of names the codes.
            kind_of: `_places` of the operations.
        """
        *stream, operation, iteration, ordinal = calls
        kinds = kind_of[operation]
        number = distinct(_packed(stream))[1]
        order = _order(number * len(MATCHED) + kinds, [iteration, ordinal])
        orders = np.split(order, np.cumsum(np.bincount(number))[:-1])
        calls = [kinds, iteration, ordinal]
        patterns = [self._pattern([each[own].astype(np.int64) for each in calls]) for own in orders]
        return Arranged(orders, patterns)

    def _pattern(self, call: list[Numbers]) -> int:
        """The number of the pattern of some calls, which are in order."""
        key = (len(call[0]), *(int(column.sum()) for column in call))
        candidates = self._alike.setdefault(key, [])
        for number in candidates:
            if all(map(np.array_equal, self._patterns[number], call)):
                return number
        candidates.append(len(self._patterns))
        self._patterns.append(Pattern(*(column.copy() for column in call)))
        return candidates[-1]

    @property
    def pipelined(self) -> bool:
        """Whether ranks also send to and receive from each other."""
        return self._others > 0

    def peers(self) -> pl.DataFrame | None:
        """The transfers of `named_transfers`, else of `paired_by_ends`; None if there are none.

        Their kernels arrive when they start: before, they may have stood behind others.
        """
        paired = None
        if any(part.height for part in self._named):
            paired = named_transfers(pl.concat(self._named))
            self._lose(paired.unique(["rank", "communicator", "start_ns"]), -1)  # of several each
        if (paired is None or paired.is_empty()) and any(part.height for part in self._sent):
            paired = paired_by_ends(pl.concat(self._sent), self._links)
            self._lose(paired, -1)
        if paired is None or paired.is_empty():
            return None
        return paired.with_columns(arrival_ns="start_ns")

    def streams(self) -> pl.DataFrame:
        """The columns of STREAMS, and habit: its operations, and how many an iteration has."""
        nothing = Pattern(*[np.empty(0, dtype=np.int64)] * 3)
        habits = (
            pl.concat(
                each.frame().with_columns(pattern=pl.lit(number, pl.Int64))
                for number, each in enumerate([*self._patterns, nothing])
            )
            .filter(pl.col("operation") < len(SPLITTABLE))
            .group_by("pattern", "operation", "iteration")
            .agg(count=pl.len())
            .group_by("pattern", "operation")
            .agg(count=pl.col("count").median().round().cast(pl.Int64))
            .sort("operation")
            .with_columns(name=pl.col("operation").replace_strict(dict(enumerate(SPLITTABLE))))
            .group_by("pattern", maintain_order=True)
            .agg(habit=pl.format("{}*{}", "name", "count").str.join(" "))
        )
        return pl.concat(self._stream_rows).join(habits, on="pattern")

    def middle(self, streams: list[int], samples: int) -> pl.DataFrame:
        """The calls of some streams in the iterations around the middle of the run.

        Args:
            streams: one of each rank.
            samples: least number of instances in these iterations, unless the run has fewer.

        Returns:
            rank, operation, iteration, ordinal, arrival_ns, end_ns, and bytes where any are known.
        """
        selected = [self._streams[number] for number in streams]
        patterns = {each.pattern: self._patterns[each.pattern] for each in selected}
        numbers = np.unique(np.concatenate([each.iteration for each in patterns.values()]))
        calls_of = {number: int(each.splittable.sum()) for number, each in patterns.items()}
        all_calls = sum(calls_of[each.pattern] for each in selected)
        per_iteration = all_calls / (len(selected) * len(numbers))
        needed = min(int(samples / max(per_iteration, 0.1)) + 2, len(numbers))
        first = (len(numbers) - needed) // 2
        chosen = numbers[first : first + needed]
        places = {
            number: np.flatnonzero(np.isin(each.iteration, chosen) & each.splittable)
            for number, each in patterns.items()
        }
        calls = [Selected(each, places[each.pattern]) for each in selected]
        shared = {number: each.at(places[number]).frame() for number, each in patterns.items()}
        columns = {name: self._taken(name, calls) for name in OWN[2:]}
        return pl.concat(shared[each.pattern] for each in selected).with_columns(
            rank=np.repeat([each.rank for each in selected], [len(each.places) for each in calls]),
            **{name: values for name, values in columns.items() if values is not None},
        )

    def laid_out(self, groups: list[tuple[int, int, list[int]]]) -> Layout:
        """The calls by group, rank and instance; they are removed here, to save memory.

        Args:
            groups: number, number of members and streams (by rank) of each group, ascending.
        """
        calls: list[Selected] = []
        patterns = [Pattern(*[np.empty(0, dtype=np.int64)] * 3)]
        numbers = [np.empty(0, dtype=np.int32)]
        unmatched = [UNMATCHED.to_frame()]
        count = 0
        for group, members, streams in groups:
            members_streams = [self._streams[number] for number in streams]
            instances, matched, others = self._instances(group, members, members_streams)
            number = np.arange(count, count := count + len(instances.iteration), dtype=np.int32)
            patterns.append(instances)
            calls += matched
            numbers += [number] * len(matched)
            unmatched += others

        def taken_away(name: str) -> NDArray[Any] | None:
            values = self._taken(name, calls)
            self._columns[name].clear()
            return values

        lengths = [len(each.places) for each in calls]
        ranks = np.array([each.stream.rank for each in calls], dtype=np.int32)
        rows = [pl.Series("rank", np.repeat(ranks, lengths))]
        for name, values in zip(OWN[1:], threaded(taken_away, OWN[1:]), strict=True):
            if values is not None:
                rows.append(pl.Series(name, values))
        rows.append(pl.Series("instance", np.concatenate(numbers)))
        instances = Pattern(*map(np.concatenate, zip(*patterns, strict=True)))
        shared = pl.DataFrame(
            {
                "group": np.repeat(
                    np.array([group for group, *_ in groups], dtype=np.int32),
                    [len(each.iteration) for each in patterns[1:]],
                ),
                "operation": pl.Series(MATCHED, dtype=SHORT).gather(instances.operation),
                "iteration": instances.iteration,
                "ordinal": instances.ordinal.astype(np.int32),
            }
        )
        unknown = pl.when(pl.col("bytes") != UNKNOWN_BYTES).then("bytes")
        frame = pl.DataFrame(rows)
        frame = frame.with_columns(bytes=unknown) if "bytes" in frame.columns else frame
        lists = (unmatched, self._lost, self._lacking)
        return Layout(frame, shared, *(pl.concat(each) for each in lists))

    def _instances(
        self, group: int, members: int, streams: list[Stream]
    ) -> tuple[Pattern, list[Selected], list[pl.DataFrame]]:
        """The instances of a group, their calls by rank, and UNMATCHED."""
        patterns = {each.pattern: self._patterns[each.pattern] for each in streams}
        places = {number: np.arange(len(each.iteration)) for number, each in patterns.items()}
        instances = next(iter(patterns.values()))
        unmatched = []
        if members < 2 or len(streams) < members or len(patterns) > 1 or instances.repeats:
            instances, places = common(patterns, [each.pattern for each in streams], members)
            others = {number: each.without(places[number]) for number, each in patterns.items()}
            if len(streams) == members > 1:
                ranks = {"rank": [each.rank for each in streams]}
                of_ranks = pl.DataFrame(ranks | {"pattern": [each.pattern for each in streams]})
                fewer = lacking(patterns).join(of_ranks, on="pattern")
                self._lacking.append(fewer.select("rank", "iteration"))
            reason = REASONS[0 if members < 2 else 1]
            unmatched += [
                others[each.pattern].counted(each.rank, group, reason) for each in streams
            ]
        calls = [Selected(each, places[each.pattern]) for each in streams]
        sizes = self._taken("bytes", calls)
        if sizes is not None and len(instances.iteration):
            sizes = sizes.reshape(len(calls), -1)
            least = np.where(sizes == UNKNOWN_BYTES, np.iinfo(np.int64).max, sizes).min(axis=0)
            equal = np.isin(instances.operation, [SPLITTABLE.index(each) for each in EQUAL_SIZES])
            differ = np.flatnonzero(equal & (sizes.max(axis=0) > least))
            if len(differ):
                differing = instances.at(differ)
                unmatched += [differing.counted(each.rank, group, REASONS[2]) for each in streams]
                instances = instances.without(differ)
                calls = [Selected(each, np.delete(chosen, differ)) for each, chosen in calls]
        if unmatched:
            lost = [Selected(each, np.delete(np.arange(len(each.order)), kept))
                    for each, kept in calls]  # fmt: skip
            iteration = [patterns[each.pattern].iteration[chosen] for each, chosen in lost]
            times = {name: self._taken(name, lost) for name in ("arrival_ns", "end_ns")}
            self._lose(pl.DataFrame({"iteration": np.concatenate(iteration), **times}))
        return instances, calls if len(instances.iteration) else [], unmatched

    def _lose(self, calls: pl.DataFrame, sign: int = 1) -> None:
        """Count calls that belong to no instance; with the sign -1 some of them do after all."""
        lasted = pl.col("end_ns") - pl.col("arrival_ns")
        self._lost.append(calls.group_by("iteration").agg(lasted_ns=sign * lasted.sum()))

    def _taken(self, name: str, calls: list[Selected]) -> NDArray[Any] | None:
        """A column of some calls; None if no value is known."""
        parts = self._columns[name]
        if name == "bytes" and all(part is None for part in parts):
            return None
        edges = np.append(0, np.cumsum([len(places) for _, places in calls], dtype=np.int64))
        taken = np.empty(edges[-1], dtype=np.bool_ if name == "gradient" else np.int64)
        for (stream, places), low, high in zip(calls, edges[:-1], edges[1:], strict=True):
            column, order = parts[stream.part], stream.order
            if column is None:
                taken[low:high] = UNKNOWN_BYTES
            else:
                order = order if len(places) == len(order) else order[places]
                column[stream.rows].take(order, out=taken[low:high], mode="clip")
        return taken


def _codes(values: pl.Series) -> NDArray[Any]:
    """The integers behind the values."""
    return values.to_physical().to_numpy()


def _places(values: pl.Series, names: tuple[str, ...]) -> Numbers:
    """Code of a value → its index in `names`, as an array."""
    distinct = values.unique()
    codes = _codes(distinct)
    table = np.zeros(int(codes.max(initial=0)) + 1, dtype=np.int64)
    table[codes] = [names.index(name) for name in distinct.cast(pl.String)]
    return table


def _packed(columns: list[NDArray[Any]]) -> Numbers:
    """One integer for the values of each row, in their order."""
    number = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        values, low = column, int(column.min(initial=0))
        span = int(column.max(initial=0)) - low + 1
        if span > FAR_APART:
            distinct, values = np.unique(column, return_inverse=True)
            span, low = len(distinct), 0
        number = number * span + values - low
    return number


def _order(kinds: Numbers, call: list[NDArray[Any]]) -> Numbers:
    """The order of calls by kind, iteration and ordinal; found sooner if they are in time order."""
    order = np.argsort(kinds.astype(np.min_scalar_type(int(kinds.max()))), kind="stable")
    number = _packed([kinds, *call])
    if (np.diff(number[order]) < 0).any():
        return np.argsort(number, kind="stable")
    return order
