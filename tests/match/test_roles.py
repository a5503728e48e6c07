"""Roles: what `--roles` may say, what it must not, and when they are inferred."""

from pathlib import Path

import polars as pl
import pytest

from rankscope.errors import UsageError
from rankscope.match.collectives import REDUCING, match
from rankscope.match.records import ALL
from rankscope.match.roles import given_roles, inferred_roles
from rankscope.model.schema import ACTIVITIES, COLLECTIVES, empty
from tests.frames import filled
from tests.match.worlds import world
from tests.support import Cli, MakeStored, Stored, mostly_nightly, mostly_slow


def test_the_first_dimension_varies_fastest() -> None:
    roles = given_roles("tp=2,pp=4,dp=2", list(range(16)), 16)
    assert [roles.of[rank] for rank in (0, 1, 2, 3, 7, 8, 15)] == [
        "pp=0", "pp=0", "pp=1", "pp=1", "pp=3", "pp=0", "pp=3",
    ]  # fmt: skip
    assert (roles.source, roles.replicas) == ("given", True)
    assert roles.links[:3] == [(0, 2), (1, 3), (2, 4)]
    assert (6, 8) not in roles.links, "the last stage has nobody after it"
    assert len(roles.links) == 12


@pytest.mark.parametrize("spec", ["dp=8", "tp=2,dp=4", "TP=2, fsdp=4", "dp=8,pp=1"])
def test_replicas_share_a_role(spec: str) -> None:
    roles = given_roles(spec, list(range(8)), 8)
    assert len({*roles.of.values()}) == 1
    assert roles.links == []
    if "pp" not in spec:
        assert {*roles.of.values()} == {ALL}


def test_other_dimensions_are_roles_of_their_own() -> None:
    roles = given_roles("dp=2,actor=2,pp=2", list(range(8)), 8)
    assert [roles.of[rank] for rank in range(8)] == [
        f"actor={actor},pp={stage}" for stage in (0, 1) for actor in (0, 1) for _ in (0, 1)
    ]


def test_only_the_ranks_at_hand_have_roles() -> None:
    roles = given_roles("pp=4,dp=4", [0, 3, 5], 16)
    assert roles.of == {0: "pp=0", 3: "pp=3", 5: "pp=1"}
    assert given_roles("pp=2,dp=2", [0, 1, 3], None).of == {0: "pp=0", 1: "pp=1", 3: "pp=1"}


WRONG = [
    ("tp=2,dp=2", "4 ranks, the job has 8"),
    ("tp=2,pp=4,dp=8", "64 ranks, the job has 8"),
    ("tp=2,tp=4", "tp=4"),
    ("tp=2,TP=4", "TP=4"),
    ("tp=0,dp=8", "tp=0"),
    ("tp=-2,dp=4", "tp=-2"),
    ("tp=2.0,dp=4", "tp=2.0"),
    ("tp=,dp=8", "tp="),
    ("=8", "=8"),
    ("dp=8,", "''"),
    ("dp 8=8", "dp 8=8"),
    ("dp=8=1", "dp=8=1"),
    ("dp=²", "dp=²"),
    ("dp=" + "9" * 5_000, "is no NAME=SIZE"),
    ("dp=8," + "x" * 300, "is no NAME=SIZE"),
]


@pytest.mark.parametrize(("spec", "words"), WRONG)
def test_what_says_nothing_sensible_is_refused(spec: str, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        given_roles(spec, list(range(8)), 8)
    assert words in refused.value.message
    assert "tp=2,pp=4,dp=8" in refused.value.hint


@pytest.mark.parametrize("spec", ["nonsense", "dp", "", "nowhere.csv"])
def test_what_is_no_spec_is_a_file(
    spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="cannot be read"):
        given_roles(spec, [0, 1], 2)


def test_a_csv(tmp_path: Path) -> None:
    table = tmp_path / "my=roles.csv"
    table.write_text("rank,role,remark\n0, encoder ,x\n1,decoder,\n3,decoder,y\n9,unused,\n")
    roles = given_roles(str(table), [0, 1, 3], 4)
    assert roles.of == {0: "encoder", 1: "decoder", 3: "decoder"}
    assert (roles.source, roles.links) == ("given", [])


BAD_TABLES = {
    "missing": ("rank,role\n0,a\n1,a\n", "rank 2"),
    "nameless": ("rank,role\n0,a\n1,a\n2,  \n", "rank 2"),
    "other columns": ("worker,role\n0,a\n", "is no CSV of rank,role"),
    "no number": ("rank,role\nzero,a\n", "is no CSV of rank,role"),
    "short row": ("rank,role\n0\n", "is no CSV of rank,role"),
    "empty": ("", "rank 0"),
    "binary": ("rank,role\n0,\x00\n", "rank 1"),
}


@pytest.mark.parametrize("name", BAD_TABLES)
def test_csvs_that_cannot_be_used(name: str, tmp_path: Path) -> None:
    text, words = BAD_TABLES[name]
    table = tmp_path / "roles.csv"
    table.write_text(text)
    with pytest.raises(UsageError) as refused:
        given_roles(str(table), [0, 1, 2], 3)
    assert words in refused.value.message
    assert str(table) in refused.value.message


def test_a_csv_in_another_encoding(tmp_path: Path) -> None:
    table = tmp_path / "roles.csv"
    table.write_bytes(b"rank,role\n0,caf\xe9\n")
    with pytest.raises(UsageError, match="is no CSV"):
        given_roles(str(table), [0], 1)


def test_a_folder_is_no_csv(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        given_roles(str(tmp_path), [0], 1)


@pytest.mark.parametrize("command", mostly_slow(["imbalance", "diff", "pick-reports", "report"], 2))
@pytest.mark.parametrize("spec", ["dp=3", "junk", "tp=2,tp=2"])
def test_wrong_roles_are_wrong_usage(cli: Cli, sample: Stored, command: str, spec: str) -> None:
    where = {"diff": [sample.db, sample.db], "report": ["--db", sample.db, "-o", "page.html"]}
    result = cli(command, *where.get(command, ["--db", sample.db]), "--roles", spec)
    result.refused(2, "--roles", spec)


@pytest.mark.slow
def test_stages_are_distinguished_by_who_reduces_together(stored: MakeStored) -> None:
    """The last stage does more, and nobody said so: inferred, and said to be."""
    analysis = stored("pipeline", ranks=8, slow="stage", factor=1.5).analysis()
    assert analysis.roles.source == analysis.facts.roles == "inferred"
    assert analysis.roles.of[3] == analysis.roles.of[7] == "like rank 3"
    assert {analysis.roles.of[rank] for rank in (0, 1, 2, 4, 5, 6)} == {"like rank 0"}
    output = [each for each in analysis.warnings if each.code == "roles-inferred"]
    assert len(output) == 1
    assert "--roles" in output[0].message
    assert "3, 7" in output[0].message


GIGABYTE = 2**30
NORM = 4


@pytest.mark.parametrize("sized", [True, False])
def test_the_norm_of_gradients_proves_no_replicas(sized: bool) -> None:
    """Two stages on a host each reduce their gradients, and the norm over everybody."""
    rows = [(rank // 4, rank, GIGABYTE, GIGABYTE, 4_000_000) for rank in range(8)]
    rows += [(2, rank, NORM, NORM, 10_000) for rank in range(8)]
    reducing = pl.DataFrame(rows, schema=REDUCING, orient="row")
    if not sized:
        unknown = pl.lit(None, pl.Int64)
        reducing = reducing.with_columns(bytes=unknown, largest_bytes=unknown)
    hosts: dict[int, str | None] = {rank: f"node{rank // 4}" for rank in range(8)}
    roles = inferred_roles([*range(8)], hosts, reducing, lambda _: empty(ACTIVITIES))
    assert (roles.source, roles.replicas) == ("none", False)
    everywhere: dict[int, str | None] = dict.fromkeys(range(8), "node0")
    roles = inferred_roles([*range(8)], everywhere, reducing, lambda _: empty(ACTIVITIES))
    assert roles.source == "inferred"
    assert [roles.of[rank] for rank in (0, 3, 4, 7)] == 2 * ["like rank 0"] + 2 * ["like rank 4"]


def test_a_norm_alone_proves_nothing() -> None:
    rows = [(0, rank, 100 * NORM, NORM, 1_000_000) for rank in range(4)]
    reducing = pl.DataFrame(rows, schema=REDUCING, orient="row")
    one_host: dict[int, str | None] = dict.fromkeys(range(4), "node0")
    roles = inferred_roles([*range(4)], one_host, reducing, lambda _: empty(ACTIVITIES))
    assert (roles.source, roles.replicas) == ("none", False)


@pytest.mark.parametrize("size", [None, GIGABYTE])
def test_what_reduces_gradients_is_summed(size: int | None) -> None:
    made = world(4, 10, 0, tp=2, calls="td")
    carried = filled(made.collectives.with_columns(bytes=pl.lit(size, pl.Int64)), COLLECTIVES)
    matched = match(carried, made.utc_starts)
    reducing = matched.reducing
    assert reducing.schema == REDUCING
    assert reducing["rank"].sort().to_list() == [0, 1, 2, 3]
    assert reducing["bytes"].to_list() == 4 * [None if size is None else 10 * size]
    assert reducing["largest_bytes"].to_list() == 4 * [size]
    assert all(10 * 300_000 <= each <= 10 * 310_000 for each in reducing["transfer_ns"])


@pytest.mark.parametrize(
    ("name", "ranks"), mostly_nightly([("buckets", 4), ("plain", 8), ("slow_host", 16)])
)
def test_data_parallel_ranks_are_alike(stored: MakeStored, name: str, ranks: int) -> None:
    analysis = stored(name, ranks=ranks).analysis()
    assert analysis.roles.source == "none"
    assert {*analysis.roles.of.values()} == {ALL}
    assert analysis.roles.replicas, "all reduce their gradients together"
    assert "roles-inferred" not in {each.code for each in analysis.warnings}


@pytest.mark.slow
def test_given_roles_are_not_called_inferred(stored: MakeStored) -> None:
    analysis = stored("pipeline", ranks=8, slow="stage", factor=1.5).analysis(roles="pp=4,dp=2")
    assert analysis.facts.roles == "given"
    assert "roles-inferred" not in {each.code for each in analysis.warnings}
    assert {*analysis.rows(all_iterations=True)["role"]} == {f"pp={stage}" for stage in range(4)}
