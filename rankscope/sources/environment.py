"""Rank claims out of an environment, and the host; nothing else of it is ever kept."""

from __future__ import annotations

from collections.abc import Iterable

from rankscope.model.reports import Claim

RANK_VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMIX_RANK", "PMIX_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
"""Variables that tell a process's rank and the world's size, most trusted first."""

LOCAL_RANK_VARIABLES = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")


def claims_of(variables: Iterable[str]) -> tuple[Claim, ...]:
    """The ranks claimed by `NAME=value` strings, in the order of `RANK_VARIABLES`."""
    numbers = _numbers(variables)
    return tuple(
        Claim(numbers[rank], numbers.get(size), f"environment {rank}")
        for rank, size in RANK_VARIABLES
        if rank in numbers
    )


def local_rank_of(variables: Iterable[str]) -> int | None:
    """The local rank claimed by `NAME=value` strings."""
    numbers = _numbers(variables)
    return next((numbers[name] for name in LOCAL_RANK_VARIABLES if name in numbers), None)


def _numbers(variables: Iterable[str]) -> dict[str, int]:
    wanted = {name for pair in RANK_VARIABLES for name in pair} | {*LOCAL_RANK_VARIABLES}
    split = (variable.partition("=") for variable in variables)
    return {
        name: int(value)
        for name, _, value in split
        if name in wanted and value.isascii() and value.isdigit() and len(value) < 10
    }


def first_printable(names: Iterable[str]) -> str | None:
    """The first name, without characters that could play tricks on a terminal."""
    return next(
        ("".join(char if char.isprintable() else "?" for char in name)[:64] for name in names), None
    )
