"""The numbers in the names of reports: which of them distinguish reports and count ranks."""

import math
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec.structs import replace

from rankscope.model.kinds import EvidenceKind
from rankscope.model.reports import Claim, RankEvidence, ReportFile
from rankscope.sources import formats
from rankscope.util.grouping import grouped

NAMES_DIFFER = RankEvidence("file names", EvidenceKind.FILE_NAME)
NODES = RankEvidence("node and device in names", EvidenceKind.ORDER, own=True)
RANK_PATTERN = RankEvidence("--rank-pattern", EvidenceKind.USER, own=True)

HANDLER_ENDING = re.compile(r"_[0-9]+\.[0-9]{13,}$")
"""Process id and time, with which torch.profiler.tensorboard_trace_handler ends a name."""

SLOWEST_FIRST = (
    ("node", "host", "machine", "server", "pod"),
    ("pp", "pipeline"),
    ("dp", "ddp", "fsdp", "data"),
    ("ep", "expert"),
    ("cp", "sp"),
    ("tp", "mp", "tensor"),
    ("local", "gpu", "device", "gcd", "rank"),
)
"""What a number in a name may count, in the usual order of ranks; the last ones count fastest."""

WORDS = "|".join(word for words in SLOWEST_FIRST for word in words)

PLACE = re.compile(
    rf"(?:^|[^a-z])(({WORDS})(?:[_\-.]?rank)?[_\-.=]?)([0-9]{{1,6}})(?!\d)", re.IGNORECASE
)
"""A place in one dimension of a job: its number with the word before it."""

NUMBER = re.compile(r"([A-Za-z]*[_\-.=/]?)(?<!\d)([0-9]{1,6})(?!\d)")
"""A number with the word before it."""

PLACE_GROUP = re.compile(r"rank[1-9]")
"""Groups of `--rank-pattern` that make a rank together; `rank1` counts slowest."""


def numbered(
    reports: Sequence[ReportFile], user_pattern: re.Pattern[str] | None = None
) -> list[ReportFile]:
    """The reports, with the ranks that the numbers in their names give when they are compared.

    The rank follows from the groups `rank1`, `rank2`, … of the user's pattern; or from the number
    in which all names differ, or those of one folder, or the folders of reports of one name; or
    from numbers of nodes and devices. The other reports get a pattern for the numbers in which they
    differ.

    Args:
        user_pattern: the user's pattern of the rank.
    """
    if user_pattern is not None and (groups := place_groups(user_pattern)):
        claims = _by_groups([each.path for each in reports], user_pattern, groups)
        return [replace(each, numbers=claims.get(each.path)) for each in reports]
    paths = [each.path for each in reports]
    nodes, grid = _grid(paths)
    hint = grid or _varying(paths)
    folders = grouped((path.parent, path) for path in paths)
    alone = [path for path, *others in folders.values() if not others]
    ranks: dict[Path, int] = {}
    if len({HANDLER_ENDING.sub("", formats.title(path)) for path in alone}) > 1:
        alone = []
    all_alike = grid is not None or differing_numbers(paths)
    for group in (paths,) if all_alike else (*folders.values(), alone):
        ranks |= differing_numbers(group)
    claims = {path: Claim(rank, None, NAMES_DIFFER) for path, rank in ranks.items()}
    claims |= {path: Claim(rank, None, NODES) for path, rank in nodes.items()}
    return [replace(each, numbers=claims.get(each.path), pattern=hint) for each in reports]


def found_before(rank: int, evidence: str) -> Claim:
    """The claim that names made of a report when it was ingested, by its rank and evidence."""
    known = (each for each in (NODES, RANK_PATTERN) if each.name == evidence)
    return Claim(rank, None, next(known, NAMES_DIFFER))


def place_groups(user_pattern: re.Pattern[str]) -> list[str]:
    """The groups of a pattern that make a rank together, the slowest first."""
    return sorted(filter(PLACE_GROUP.fullmatch, user_pattern.groupindex))


def differing_numbers(paths: Iterable[Path]) -> dict[Path, int]:
    """The ranks of reports whose names are alike but for one number that counts them from 0.

    Names of folders count where the paths are of several. Empty if there is no such number, or
    several.
    """
    paths = sorted({*paths})
    if len(paths) < 2:
        return {}
    titles = _titles(paths)
    numbers = [re.findall(r"\d+", title) for title in titles]
    if len({re.sub(r"\d+", "#", title) for title in titles}) > 1:
        return {}
    candidates = []
    for column in zip(*numbers, strict=True):
        values = [int(text) if len(text) < 8 else -1 for text in column]
        if sorted(values) == list(range(len(paths))) and values not in candidates:
            candidates.append(values)
    return dict(zip(paths, candidates[0], strict=True)) if len(candidates) == 1 else {}


def _titles(paths: Sequence[Path]) -> list[str]:
    """The names of reports with those of their folders, without what all have in common."""
    shared = os.path.commonpath(path.absolute().parent for path in paths)
    return [f"{path.absolute().relative_to(shared).parent}/{formats.title(path)}" for path in paths]


def _by_groups(
    paths: Sequence[Path], user_pattern: re.Pattern[str], groups: Sequence[str]
) -> dict[Path, Claim]:
    """The ranks of the reports that the user's pattern fits, each group a dimension."""
    fits = {path: fit for path in paths if (fit := user_pattern.search(str(path)))}
    places = {
        path: [int(fit[group]) for group in groups]
        for path, fit in fits.items()
        if all(re.fullmatch("[0-9]{1,6}", fit[group] or "") for group in groups)
    }
    return {
        path: Claim(rank, None, RANK_PATTERN) for path, rank in _counted([*places.items()]).items()
    }


def _counted(places: Sequence[tuple[Path, list[int]]]) -> dict[Path, int]:
    """The ranks of places in a grid, the first dimension the slowest, each from its lowest number.

    Empty without places.
    """
    columns = [*zip(*(place for _, place in places), strict=True)]
    ranks: dict[Path, int] = {}
    for path, place in places:
        rank = 0
        for number, column in zip(place, columns, strict=True):
            rank = rank * _size(column) + number - min(column)
        ranks[path] = rank
    return ranks


def _size(column: Sequence[int]) -> int:
    """The size of a dimension."""
    return max(column) - min(column) + 1


def _varying(paths: Sequence[Path]) -> str | None:
    """A pattern for the only number in which all names differ; None without one."""
    if len(paths) < 2:
        return None
    matches = [[*NUMBER.finditer(HANDLER_ENDING.sub("", title))] for title in _titles(paths)]
    if len({tuple(each[1] for each in numbers) for numbers in matches}) > 1:
        return None
    columns = [*zip(*([each[2] for each in numbers] for numbers in matches), strict=True)]
    [nth, *others] = [nth for nth, column in enumerate(columns) if len({*column}) > 1] or [-1]
    if nth < 0 or others:
        return None
    number = matches[0][nth]
    before = re.search("[^/]*$", number.string[: number.start(2)])
    assert before is not None
    for beginning in (number[1], before[0]):  # the shorter one may fit another number
        pattern = rf"{re.escape(beginning)}(?P<rank>\d+)"
        fits = [re.search(pattern, str(path)) for path in paths]
        if [each and each["rank"] for each in fits] == [*columns[nth]]:
            return pattern
    return None


def _grid(paths: Sequence[Path]) -> tuple[dict[Path, int], str | None]:
    """The ranks of reports that are named by node and device; a pattern for other dimensions.

    Devices belong to nodes where the numbers of both make a whole grid, as the launchers of PyTorch
    count. The order in which other dimensions are counted is unknown.
    """
    matches = [[*PLACE.finditer(title)] for title in _titles(paths)] if len(paths) > 1 else []
    words = {tuple(each[2].lower() for each in places) for places in matches}
    if len(words) != 1:
        return {}, None
    speeds = [next(i for i, of in enumerate(SLOWEST_FIRST) if word in of) for word in words.pop()]
    columns = [*zip(*([int(each[3]) for each in places] for places in matches), strict=True)]
    varying = [nth for nth, column in enumerate(columns) if len({*column}) > 1]
    varying = [nth for nth in varying if columns[nth] not in columns[:nth]]
    rows = [[columns[nth][row] for nth in varying] for row in range(len(paths))]
    if len(varying) < 2 or len({*map(tuple, rows)}) < len(paths):
        return {}, None
    of_nodes = [speeds[nth] for nth in varying] == [0, len(SLOWEST_FIRST) - 1]
    if of_nodes and math.prod(_size(columns[nth]) for nth in varying) == len(paths):
        return _counted([*zip(paths, rows, strict=True)]), None
    order = sorted(varying, key=lambda nth: speeds[nth])
    return {}, ".*".join(
        rf"{re.escape(matches[0][nth][1])}(?P<rank{order.index(nth) + 1}>\d+)" for nth in varying
    )
