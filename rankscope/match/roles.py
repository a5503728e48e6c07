"""Which ranks do the same work by design: their role. See METHOD.md#verdict."""

import csv
import os.path
import re
from collections.abc import Callable
from itertools import combinations
from math import prod
from pathlib import Path

import polars as pl

from rankscope.errors import UsageError
from rankscope.match.rank_axis import RANKS_AT_ONCE
from rankscope.match.records import ALL, Roles
from rankscope.util.rank_list import LONGEST, MOST_RANKS
from rankscope.util.wording import counted

REPLICATED = frozenset({"dp", "ddp", "fsdp", "hsdp", "tp", "sp", "cp", "ep"})
"""Kinds of parallelism whose ranks do the same work on other data, or on other parts of it."""

PIPELINE = "pp"

ALIKE = 0.05
"""Kernels of equal names and counts whose sizes differ by less are the same work, and so are
collectives of one operation."""

LEAST_BYTES = 1024
"""Least size of a message of gradients; a smaller one is their norm, a loss or a flag."""

SIZE = re.compile("[1-9][0-9]{0,8}")

HINT = "like tp=2,pp=4,dp=8 (fastest-varying first), or a CSV file with the columns rank,role"


MAKEUP = ("rank", "iteration", "kind", "name", "count", "size")
"""Columns of ACTIVITIES that describe the work of a rank."""


def given_roles(spec: str, ranks: list[int], world_size: int | None) -> Roles:
    """The roles that the option `--roles` gives.

    Ranks are numbered with the first dimension varying fastest. Ranks that differ only in
    replicated dimensions (data, tensor, sequence, expert) share a role.

    Raises:
        UsageError: `spec` is malformed, or does not fit these ranks.
    """
    # Path.is_file fails on what is too long for a file name
    if "=" not in spec or os.path.isfile(spec):
        return Roles(_from_file(Path(spec), ranks), "given", True, [])
    sizes: dict[str, int] = {}
    for part in spec.split(","):
        name, _, size = part.partition("=")
        name = name.strip().lower()
        if not name.isidentifier() or not SIZE.fullmatch(size.strip()) or name in sizes:
            option = f"--roles {spec[:LONGEST]!r}: {part[:LONGEST]!r}"
            raise UsageError(f"{option} is no NAME=SIZE", hint=HINT)
        sizes[name] = int(size)
    world = world_size or max(ranks) + 1
    if (product := prod(sizes.values())) != world:
        many = (
            counted(product, "rank") if product <= MOST_RANKS else f"more than {MOST_RANKS} ranks"
        )
        raise UsageError(
            f"--roles {spec[:LONGEST]}: that makes {many}, the job has {world}", hint=HINT
        )
    places = {rank: _place(rank, sizes) for rank in ranks}
    role_of = {
        rank: ",".join(
            f"{name}={value}" for name, value in places[rank].items() if name not in REPLICATED
        )
        or ALL
        for rank in ranks
    }
    links = []
    if sizes.get(PIPELINE, 1) > 1:
        stride = prod(list(sizes.values())[: list(sizes).index(PIPELINE)])
        last = sizes[PIPELINE] - 1
        links = [(rank, rank + stride) for rank in ranks if places[rank][PIPELINE] < last]
    return Roles(role_of, "given", True, links)


def inferred_roles(
    ranks: list[int],
    hosts: dict[int, str | None],
    reducing: pl.DataFrame,
    activities: Callable[[list[int]], pl.DataFrame],
) -> Roles:
    """Roles by gradient reductions: ranks that reduce them together hold the same parameters.

    Groups whose kernels are alike in names, counts and sizes are one role.

    Args:
        ranks: all ranks.
        hosts: rank → host.
        reducing: `Matched.reducing`, with the columns of REDUCING.
        activities: gives the columns MAKEUP of ACTIVITIES of some ranks, narrow.
    """
    carrying = _carrying(reducing)
    groups = [
        sorted(members) for members in carrying.group_by("group").agg("rank")["rank"].to_list()
    ]
    groups.sort()
    alone = dict.fromkeys(ranks, ALL)
    if carrying.height < len(ranks) or any(len(group) < 2 for group in groups):
        return Roles(alone, "none", False, [])
    if len(groups) == 1:
        return Roles(alone, "none", True, [])
    places = [{hosts[rank] for rank in group} for group in groups]
    if all(len(place) == 1 for place in places) and len(set.union(*places)) > 1:
        return Roles(alone, "none", False, [])  # by host: slow hosts would hide among themselves
    merged = _merged(groups, activities)
    role_of = {rank: f"like rank {group[0]}" for group in merged for rank in group}
    if len(merged) == 1:
        return Roles(alone, "none", True, [])
    return Roles(role_of, "inferred", True, [])


def _carrying(reducing: pl.DataFrame) -> pl.DataFrame:
    """rank, group: the communicator over which a rank reduces its gradients.

    It carries most bytes, or takes most time to transfer where sizes are unknown. The norm of the
    gradients is summed over ranks that hold different parameters, so that it proves nothing.
    """
    carried = reducing.filter(pl.col("largest_bytes").fill_null(LEAST_BYTES) >= LEAST_BYTES)
    amount = "transfer_ns" if carried["bytes"].null_count() else "bytes"
    return (
        carried.sort(amount, "group", descending=[True, False])
        .unique("rank", keep="first", maintain_order=True)
        .select("rank", "group")
    )


def _from_file(path: Path, ranks: list[int]) -> dict[int, str]:
    wanted = {*ranks}
    try:
        if path.exists() and not path.is_file():
            raise OSError("a FIFO or a device may never end")
        with path.open(newline="", encoding="utf-8") as file:
            rows = ((int(row["rank"]), row["role"].strip()) for row in csv.DictReader(file))
            role_of = {rank: role for rank, role in rows if rank in wanted}
    except OSError as error:
        raise UsageError(f"--roles {path}: cannot be read", hint=HINT) from error
    except (KeyError, ValueError, TypeError, AttributeError, csv.Error) as error:
        raise UsageError(f"--roles {path}: is no CSV of rank,role", hint=HINT) from error
    lacking = [rank for rank in ranks if not role_of.get(rank)]
    if lacking:
        raise UsageError(
            f"--roles {path}: gives rank {lacking[0]} no role", hint="give every rank one"
        )
    return role_of


def _place(rank: int, sizes: dict[str, int]) -> dict[str, int]:
    """The place of a rank in each dimension."""
    place = {}
    for name, size in sizes.items():
        rank, place[name] = divmod(rank, size)
    return place


def _merged(
    groups: list[list[int]], activities: Callable[[list[int]], pl.DataFrame]
) -> list[list[int]]:
    """The groups, with those that have the same kernels merged."""
    makeup = _makeup(groups, activities)
    parent = list(range(len(groups)))
    for one, other in combinations(range(len(groups)), 2):
        if parent[other] == other and _alike(makeup.get(one, {}), makeup.get(other, {})):
            parent[other] = parent[one]
    merged: dict[int, list[int]] = {}
    for index, group in enumerate(groups):
        merged.setdefault(parent[index], []).extend(group)
    return [sorted(group) for group in merged.values()]


def _makeup(
    groups: list[list[int]], activities: Callable[[list[int]], pl.DataFrame]
) -> dict[int, dict[str, tuple[float, float]]]:
    """The kernels of each group, by its place, with their usual counts and sizes."""
    group_of = {rank: index for index, group in enumerate(groups) for rank in group}
    ranks, key = sorted(group_of), ["name", "group"]
    occurrences = pl.concat(
        activities(ranks[first : first + RANKS_AT_ONCE])
        .lazy()
        .filter((pl.col("kind") == "kernel") & (pl.col("name") != ""))
        .group_by("rank", "iteration", "name")
        .agg(pl.col("count", "size").sum())
        .group_by(
            "name", "count", "size",
            group=pl.col("rank").replace_strict(group_of, return_dtype=pl.Int64),
        )
        .agg(often=pl.len())
        .collect(engine="streaming")  # many small groups: twice as fast
        for first in range(0, len(ranks), RANKS_AT_ONCE)
    )  # fmt: skip
    usual = occurrences.group_by(key).agg(_median("count"), _median("size"))
    return {
        int(group): {row["name"]: (row["count"], row["size"]) for row in part.to_dicts()}
        for (group,), part in usual.partition_by("group", as_dict=True).items()
    }


def _median(name: str) -> pl.Expr:
    """The median of a column whose values come `often`."""
    cumulated, count = pl.col("often").sort_by(name).cum_sum(), pl.col("often").sum()
    ordered = pl.col(name).sort()
    middle = [ordered.filter(cumulated > place // 2).first() for place in (count - 1, count)]
    return (pl.sum_horizontal(middle) / 2).alias(name)


def _alike(one: dict[str, tuple[float, float]], other: dict[str, tuple[float, float]]) -> bool:
    if not one or one.keys() != other.keys():
        return False
    return all(
        one[name][0] == other[name][0]
        and abs(one[name][1] - other[name][1]) <= ALIKE * max(one[name][1], other[name][1])
        for name in one
    )
