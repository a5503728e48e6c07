"""What a reader must know beside the numbers, said once for all ranks it holds for."""

from __future__ import annotations

from collections.abc import Iterable

from rankscope.records import Problem


def grouped(problems: Iterable[Problem]) -> list[Problem]:
    """Problems of single ranks with the same code and words as one, its ranks in front."""
    ranks: dict[tuple[str, str], list[int]] = {}
    for problem in problems:
        ranks.setdefault((problem.code, problem.message), []).extend(problem.ranks)
    return [
        Problem(code, f"{_named(sorted(set(who)))}{message}", tuple(sorted(set(who))))
        for (code, message), who in ranks.items()
    ]


def missing_ranks(missing: tuple[int, ...], world_size: int | None, present: int) -> Problem:
    """Ranks of the job without a report."""
    world = world_size or present + len(missing)
    least = "" if world_size else "at least "
    return Problem(
        "missing-ranks",
        f"{len(missing)} of {least}{world} ranks have no report ({listed(missing)}): waits are "
        "unknown, and the slowest may be among them",
        missing,
    )


def blind_ranks(blind: tuple[int, ...], ranks: int) -> Problem:
    """Ranks whose reports hold no collectives."""
    others = ", though the others have them" if len(blind) < ranks else ""
    return Problem(
        "collectives-missing",
        f"{_named(list(blind))}no collectives in the report{others}; what is work and what is "
        "waiting is unknown there",
        blind,
    )


def listed(numbers: Iterable[int], most: int = 8) -> str:
    """`1, 2, 3, …`."""
    numbers = list(numbers)
    return ", ".join(map(str, numbers[:most])) + (", …" if len(numbers) > most else "")


def _named(ranks: list[int]) -> str:
    if not ranks:
        return ""
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {listed(ranks)}: "
