"""Rank claims from environment variables, and the host; no other variable is ever kept."""

from collections.abc import Iterable

from rankscope.model.kinds import EvidenceKind
from rankscope.model.reports import Claim, RankEvidence
from rankscope.util.rank_list import MOST_RANKS


def _variable(name: str, own: bool = False) -> RankEvidence:
    return RankEvidence(f"environment {name}", EvidenceKind.ENVIRONMENT, own)


TORCHRUN = _variable("RANK", own=True)
OPEN_MPI = _variable("OMPI_COMM_WORLD_RANK", own=True)
PMIX = _variable("PMIX_RANK")
PMI = _variable("PMI_RANK")
SLURM = _variable("SLURM_PROCID")

RANK_VARIABLES = (
    ("RANK", "WORLD_SIZE", TORCHRUN),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", OPEN_MPI),
    ("PMIX_RANK", "PMIX_SIZE", PMIX),
    ("PMI_RANK", "PMI_SIZE", PMI),
    ("SLURM_PROCID", "SLURM_NTASKS", SLURM),
)
"""Variables of a process's rank and of the world's size, the most trusted first."""

DIGITS = len(str(MOST_RANKS - 1))
"""Longer numbers are neither ranks nor sizes."""

LOCAL_RANK_VARIABLES = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")


def claims_of(variables: Iterable[str]) -> tuple[Claim, ...]:
    """The ranks claimed by `NAME=value` strings, in the order of `RANK_VARIABLES`."""
    numbers = _numbers(variables)
    return tuple(
        Claim(numbers[rank], numbers.get(size), evidence)
        for rank, size, evidence in RANK_VARIABLES
        if rank in numbers
    )


def local_rank_of(variables: Iterable[str]) -> int | None:
    """The local rank claimed by `NAME=value` strings."""
    numbers = _numbers(variables)
    return next((numbers[name] for name in LOCAL_RANK_VARIABLES if name in numbers), None)


def _numbers(variables: Iterable[str]) -> dict[str, int]:
    ranks = {name for rank, size, _ in RANK_VARIABLES for name in (rank, size)}
    read = ranks | {*LOCAL_RANK_VARIABLES}
    split = (variable.partition("=") for variable in variables)
    return {
        name: int(value)
        for name, _, value in split
        if name in read and value.isascii() and value.isdigit() and len(value) <= DIGITS
    }


def first_printable(names: Iterable[str]) -> str | None:
    """The first name, without control characters that a terminal would obey."""
    return next(
        ("".join(char if char.isprintable() else "?" for char in name)[:64] for name in names), None
    )
