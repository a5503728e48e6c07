"""Whose rank is it: the order of evidence, and contradictions."""

from pathlib import Path

import polars as pl
import pytest
from msgspec.structs import replace

from rankscope.errors import RankConflict, UnknownRank, UsageError
from rankscope.model.reports import CaptureFacts, Claim, RankIdentity, Trace
from rankscope.model.schema import DEVICE_WORK
from rankscope.sources.environment import OPEN_MPI, SLURM, TORCHRUN
from rankscope.sources.identify import (
    DEVICE,
    FILE_NAME,
    JAX,
    MPI_TRACE,
    PID,
    check_distinct,
    claims_for_report,
    identities,
    name_disagrees,
    pattern,
    process_ranks,
)
from rankscope.sources.kineto.reader import DISTRIBUTED_INFO
from rankscope.sources.name_numbers import RANK_PATTERN
from tests.frames import filled, trace

PROCESS, PID_OF_PROCESS = 1 << 24 | 77, 77


def facts(*claims: Claim, local_rank: int | None = None) -> CaptureFacts:
    return CaptureFacts("node0", 10**18, 10**9, claims, local_rank, "2023.4")


def output(
    path: str, *claims: Claim, mpi: int | None = None, own: str | None = None
) -> RankIdentity:
    ranks = {} if mpi is None else {PROCESS: mpi}
    pids = {PROCESS: PID_OF_PROCESS}
    found = identities(Path(path), facts(*claims), pids, {MPI_TRACE: ranks}, pattern(own))
    assert found.keys() == {PROCESS}
    return found[PROCESS]


ENVIRONMENT = Claim(2, 4, TORCHRUN)


def test_the_environment_beats_the_file_name() -> None:
    identity = output("report_rank_7.sqlite", ENVIRONMENT)
    assert (identity.rank, identity.world_size) == (2, 4)
    assert identity.evidence == TORCHRUN
    assert (identity.pid, identity.host) == (77, "node0")


def test_the_users_pattern_beats_everything() -> None:
    identity = output("n3/rank_7.sqlite", ENVIRONMENT, mpi=2, own=r"n(?P<rank>\d+)/")
    assert (identity.rank, identity.evidence) == (3, RANK_PATTERN)
    assert output("w8-r3.sqlite", own=r"w(?P<world>\d+)-r(?P<rank>\d+)").world_size == 8


def test_the_mpi_trace_beats_the_file_name() -> None:
    identity = output("report_rank_7.sqlite", mpi=3)
    assert (identity.rank, identity.evidence) == (3, MPI_TRACE)


def test_agreeing_evidence_is_no_conflict() -> None:
    assert output("x.sqlite", ENVIRONMENT, mpi=2).evidence == TORCHRUN


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("report_rank_3", 3),
        ("rank3", 3),
        ("profile.rank-0012", 12),
        ("RANK_5_of_job_99", 5),
        ("node2_rank1", 1),
        ("rank1_copy_rank1", 1),
        ("report_3", 3),
        ("report.11", 11),
        ("17", 17),
    ],
)
def test_names_that_tell_a_rank(name: str, rank: int) -> None:
    identity = output(f"{name}.sqlite")
    assert (identity.rank, identity.evidence) == (rank, FILE_NAME)


@pytest.mark.parametrize(
    ("name", "rank", "world"),
    [
        ("trace-3-of-8.json", 3, 8),
        ("job_12_of_128.pt.trace.json.gz", 12, 128),
        ("trace_rank_3-of-8.json", 3, 8),
        ("part-1-of-2_rank3.json", 3, None),
        ("trace_3.json.gz", 3, None),
        ("eg.rank_1.pt.trace.json.gz", 1, None),
    ],
)
def test_names_of_traces_tell_a_rank_and_the_world(name: str, rank: int, world: int | None) -> None:
    identity = output(name)
    assert (identity.rank, identity.world_size) == (rank, world)


@pytest.mark.parametrize(
    "name", ["trace-8-of-8.json", "node_771.1795269835229443237.pt.trace.json"]
)
def test_numbers_in_names_of_traces_that_are_no_rank(name: str) -> None:
    with pytest.raises(UnknownRank):
        output(name)


def test_a_process_id_is_offered_as_no_rank() -> None:
    with pytest.raises(UnknownRank) as refused:
        output("node_771.1795269835229443237.pt.trace.json")
    assert "node_" not in refused.value.hint


def test_a_number_that_is_the_process_id_is_no_rank() -> None:
    """As nsys's `-o report_%p` and on-demand traces of PyTorch are named."""
    with pytest.raises(UnknownRank, match="that of its process") as refused:
        output(f"report_{PID_OF_PROCESS}.sqlite")
    assert refused.value.hint == "read the reports one by one, each with --rank N"
    assert output(f"report_rank{PID_OF_PROCESS}.sqlite").rank == PID_OF_PROCESS


def test_what_the_profiler_says_of_the_job_beats_the_file_name() -> None:
    identity = output("trace-3-of-8.json", Claim(2, 8, DISTRIBUTED_INFO))
    assert (identity.rank, identity.evidence) == (2, DISTRIBUTED_INFO)
    assert name_disagrees(Path("trace-3-of-8.json"), identity) == 3


@pytest.mark.parametrize("name", ["report", "run2b", "rank", "crank3", "rank1_rank2", "report3x"])
def test_names_that_tell_none(name: str) -> None:
    with pytest.raises(UnknownRank, match=f"{name}.sqlite") as refused:
        output(f"{name}.sqlite")
    assert "--rank-pattern" in refused.value.hint


def test_two_worlds_in_one_environment_are_no_contradiction() -> None:
    """torchrun inside srun: SLURM counts the nodes' tasks, RANK the training's processes."""
    claims = claims_for_report(Path("r.sqlite"), facts(ENVIRONMENT, Claim(0, 1, SLURM)), None)
    assert claims[0] == ENVIRONMENT


def test_mpirun_in_a_batch_script_of_slurm() -> None:
    """Its ranks inherit what the script was told, and that is of rank 0 of as many."""
    ours, inherited = (
        Claim(2, 4, OPEN_MPI),
        Claim(0, 4, SLURM),
    )
    claims = claims_for_report(Path("r.sqlite"), facts(ours, inherited), None)
    assert claims[0] == ours


def test_variables_that_disagree_about_one_world_are_a_conflict() -> None:
    other = Claim(3, 4, SLURM)
    with pytest.raises(RankConflict, match=r"r\.sqlite.*RANK says rank 2.*SLURM_PROCID says 3"):
        claims_for_report(Path("r.sqlite"), facts(ENVIRONMENT, other), None)


def test_environment_and_mpi_trace_that_disagree_are_a_conflict() -> None:
    with pytest.raises(RankConflict, match=r"r\.sqlite.*says rank 2.*says 1"):
        output("r.sqlite", ENVIRONMENT, mpi=1)


def test_several_processes_need_the_mpi_trace() -> None:
    pids = {1 << 24 | pid: pid for pid in (31, 32, 33)}
    processes = [*pids]
    path = Path("rank_0.sqlite")
    with pytest.raises(UnknownRank, match=r"rank_0\.sqlite.*pids 31, 32, 33"):
        identities(path, facts(ENVIRONMENT), pids, {MPI_TRACE: {processes[0]: 0}}, None)
    ranks = {processes[0]: 2, processes[1]: 0, processes[2]: 1}
    found = identities(path, facts(), pids, {MPI_TRACE: ranks}, None)
    assert {(each.rank, each.pid) for each in found.values()} == {(2, 31), (0, 32), (1, 33)}


def test_two_processes_of_one_rank_are_a_conflict() -> None:
    with pytest.raises(RankConflict, match="same rank"):
        identities(Path("r.sqlite"), facts(), {1: 1, 2: 2}, {MPI_TRACE: {1: 0, 2: 0}}, None)


@pytest.mark.parametrize("text", ["(", r"rank_(\d+)", r"(?P<node>\d+)"])
def test_patterns_that_cannot_tell_a_rank(text: str) -> None:
    with pytest.raises(UsageError, match="--rank-pattern"):
        pattern(text)


@pytest.mark.parametrize(
    "text", [r"rank(\d+)", r"rank(\d+)_(\w+)", r"(?:r|\()rank([0-9]+)", r"(a|b)[(]rank(\d+)"]
)
def test_a_group_of_digits_without_a_name_is_taken_for_that_of_the_rank(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        pattern(text)
    assert refused.value.hint == f"--rank-pattern '{text.replace('k(', 'k(?P<rank>', 1)}'"


@pytest.mark.parametrize("own", [r"gpu(?P<rank>\d+)", r"(?P<rank>rank)_"])
def test_a_pattern_that_finds_no_number_names_the_file(own: str) -> None:
    with pytest.raises(UsageError, match=r"rank_1\.sqlite.*--rank-pattern"):
        output("rank_1.sqlite", own=own)


def test_two_reports_of_a_rank_are_both_named() -> None:
    with pytest.raises(RankConflict, match=r"b\.sqlite claims rank 1, and so does a\.sqlite"):
        check_distinct([(1, Path("a.sqlite")), (0, Path("c.sqlite")), (1, Path("b.sqlite"))])
    check_distinct([(1, Path("a.sqlite")), (1, Path("a.sqlite"))])


@pytest.mark.parametrize(
    ("name", "disagrees"),
    [("rank_2", None), ("rank_1", None), ("rank_0", 0), ("report_0", None), ("rank0_rank1", None)],
)
def test_names_that_contradict_better_evidence_are_reported(
    name: str, disagrees: int | None
) -> None:
    identity = RankIdentity(2, PID_OF_PROCESS, 1, 4, "node0", TORCHRUN)
    assert name_disagrees(Path(f"{name}.sqlite"), identity) == disagrees


def trace_of(devices: dict[int, list[int]]) -> Trace:
    """A report of processes with kernels on devices."""
    work = pl.DataFrame(
        [(process, device, "kernel") for process, used in devices.items() for device in used],
        schema={"process": pl.Int64, "device": pl.Int64, "kind": pl.String},
        orient="row",
    )
    return trace(work=filled(work, DEVICE_WORK))


@pytest.mark.parametrize(
    ("devices", "ranks"),
    [
        ({9: [1], 8: [0]}, {9: 1, 8: 0}),
        ({8: [0, 0], 9: [0]}, {}),  # each sees its own as device 0
        ({8: [0], 9: [2]}, {}),
        ({8: [0, 1], 9: [2]}, {}),
        ({8: [0]}, {}),  # every single process uses device 0
    ],
)
def test_devices_tell_processes_apart(devices: dict[int, list[int]], ranks: dict[int, int]) -> None:
    assert process_ranks(trace_of(devices))[DEVICE] == ranks


def test_jax_tells_its_processes() -> None:
    output = process_ranks(replace(trace_of({}), jax_processes={8: 3, 9: 2}))
    first, second = identities(Path("r.sqlite"), facts(), {8: 8, 9: 9}, output, None).values()
    assert (first.rank, second.rank, first.evidence) == (3, 2, JAX)


def test_processes_numbered_by_their_ids_where_the_user_asks() -> None:
    own = pattern(r"(?P<pid>\d+)")
    found = identities(Path("r.sqlite"), facts(), {40: 40, 38: 38, 41: 41}, {}, own)
    assert [(each.pid, each.rank, each.evidence) for each in found.values()] == [
        (38, 0, PID),
        (40, 1, PID),
        (41, 2, PID),
    ]
    assert output("rank_3.sqlite", own=r"(?P<pid>\d+)").rank == 3, "one process needs no numbering"
