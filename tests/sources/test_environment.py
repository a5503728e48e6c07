"""Rank claims out of environments."""

import pytest

from rankscope.model.reports import Claim
from rankscope.sources.environment import (
    OPEN_MPI,
    PMI,
    PMIX,
    SLURM,
    TORCHRUN,
    claims_of,
    local_rank_of,
)


@pytest.mark.parametrize(
    ("variables", "claim"),
    [
        (["RANK=3", "WORLD_SIZE=8"], Claim(3, 8, TORCHRUN)),
        (["RANK=3"], Claim(3, None, TORCHRUN)),
        (
            ["OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2"],
            Claim(1, 2, OPEN_MPI),
        ),
        (["PMIX_RANK=1"], Claim(1, None, PMIX)),
        (["PMI_RANK=1", "PMI_SIZE=4"], Claim(1, 4, PMI)),
        (["SLURM_PROCID=5", "SLURM_NTASKS=16"], Claim(5, 16, SLURM)),
    ],
)
def test_variables_of_launchers(variables: list[str], claim: Claim) -> None:
    assert claims_of(variables) == (claim,)


def test_the_trainings_own_variable_comes_first() -> None:
    claims = claims_of(["SLURM_PROCID=0", "PMIX_RANK=0", "RANK=6", "WORLD_SIZE=8"])
    assert [claim.evidence for claim in claims] == [TORCHRUN, PMIX, SLURM]


@pytest.mark.parametrize(
    "value", ["", "-1", "one", "1.0", "²", "٣", "99999999999", "1 ", "1;X=2", "0x1"]
)
def test_what_is_no_number_claims_nothing(value: str) -> None:
    assert claims_of([f"RANK={value}"]) == ()
    assert local_rank_of([f"LOCAL_RANK={value}"]) is None


def test_names_that_merely_end_in_rank_claim_nothing() -> None:
    assert claims_of(["MY_RANK=3", "GROUP_RANK=1", "xRANK=1", "rank=2", "RANK"]) == ()


def test_local_ranks() -> None:
    assert local_rank_of(["SLURM_LOCALID=2"]) == 2
    assert local_rank_of(["SLURM_LOCALID=2", "LOCAL_RANK=1"]) == 1
    assert local_rank_of([]) is None


def test_numbers_that_no_job_has_are_no_claim() -> None:
    [claim] = claims_of(["RANK=3", "WORLD_SIZE=5000000"])
    assert (claim.rank, claim.world_size) == (3, None)
    assert claims_of(["RANK=5000000", "WORLD_SIZE=8"]) == ()
