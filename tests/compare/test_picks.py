"""Picks: labels, ties, culprits, windows, and what the GUI can open."""

import shlex
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from rankscope.compare.picks import Picks, SlowSet, openable_report, pick
from rankscope.compare.report_files import ReportFiles
from rankscope.compare.scores import scores
from rankscope.errors import UsageError
from rankscope.model.schema import RANK_ITERATIONS
from rankscope.output.nsys_view import open_command
from tests.frames import filled
from tests.support import MakeStored, Stored

MS = 1_000_000


def picked(
    values: dict[int, list[int | None]],
    *slow: int,
    leads: tuple[SlowSet, ...] = (),
    no_load: int = -1,
    folder: Path = Path(),
    iterations: tuple[int, ...] = (0,),
    more: tuple[int, ...] = (),
    also: tuple[SlowSet, ...] = (),
    files: dict[int, ReportFiles] | None = None,
    flagged: Counter[int] | None = None,
    roles: dict[int, str] | None = None,
    affected: tuple[int, ...] = (),
) -> Picks:
    rows = [(rank, i, value) for rank, mine in values.items() for i, value in enumerate(mine)]
    wide = pl.DataFrame(rows, schema=["rank", "iteration", "work_ns"], orient="row")
    wide = wide.cast({"work_ns": pl.Int64}).with_columns(iteration_ns=pl.lit(100))
    views = wide.with_columns(
        start_ns=pl.col("iteration") * 100,
        view_start_ns=pl.col("iteration") * 100 + pl.col("rank"),
        view_end_ns=pl.col("iteration") * 100 + 99,
    )
    files = files or {rank: ReportFiles((folder / f"r {rank}.sqlite",), (0,)) for rank in values}
    starts: dict[int, int | None] = {rank: 1000 * rank for rank in values}
    sets = [(slow, iterations), *also]
    seen = filled(views, RANK_ITERATIONS)
    return picked_from(
        wide, seen, files, starts, sets, more, flagged, leads, no_load, roles, affected
    )


def picked_from(
    wide: pl.DataFrame,
    views: pl.DataFrame,
    files: dict[int, ReportFiles],
    starts: dict[int, int | None],
    slow: list[SlowSet],
    more: tuple[int, ...] = (),
    flagged: Counter[int] | None = None,
    leads: tuple[SlowSet, ...] = (),
    no_load: int = -1,
    roles: dict[int, str] | None = None,
    affected: tuple[int, ...] = (),
) -> Picks:
    wide = wide.with_columns(load_ns=pl.when(pl.col("iteration") != no_load).then(1))
    return pick(
        scores(wide, ["work"], "mean"),
        lambda ranks: wide.filter(pl.col("rank").is_in(ranks)),
        lambda ranks: views.filter(pl.col("rank").is_in(ranks)),
        {rank: ("n0", 50 + rank) for rank in files},
        files,
        starts,
        "work",
        slow,
        [more],
        flagged or Counter(),
        leads,
        roles=roles,
        affected=affected,
    )


def labels(picks: Picks) -> list[tuple[str, int]]:
    return [(each.label, each.rank) for each in picks.picks]


def test_lowest_median_highest() -> None:
    output = picked({0: [5], 1: [9], 2: [1], 3: [4], 4: [7]})
    assert labels(output) == [("min", 2), ("median", 0), ("max", 1)]
    assert [each.value for each in output.picks] == [1, 5, 9]
    assert [each.pid for each in output.picks] == [52, 50, 51]


def test_the_lower_middle_of_an_even_count() -> None:
    assert labels(picked({0: [1], 1: [2], 2: [3], 3: [40]}))[1] == ("median", 1)


def test_ties_go_to_the_lowest_rank() -> None:
    assert labels(picked({rank: [5] for rank in (3, 1, 2, 0)}))[0] == ("min", 0)
    output = labels(picked({0: [1], 1: [3], 2: [3], 3: [9], 4: [9]}))
    assert output == [("min", 0), ("median", 1), ("max", 3)]


def test_two_ranks_and_one() -> None:
    assert labels(picked({0: [5], 1: [4]})) == [("min", 1), ("max", 0)]
    assert labels(picked({7: [5]})) == [("min", 7)]


def test_a_slow_rank_is_never_left_out() -> None:
    values = {0: [1], 1: [5], 2: [6], 3: [9], 4: [8]}
    found = picked(values, 4)
    assert labels(found) == [("min", 0), ("median", 2), ("max", 3), ("slow", 4)]
    assert [each.slow for each in found.picks] == [False, False, False, True]
    assert labels(picked(values, 3)) == [("min", 0), ("median", 2), ("max", 3)]


def test_the_median_rank_is_no_slow_one() -> None:
    """Slow ranks are looked at beside it, whatever they score by the metric."""
    values = {0: [1], 1: [5], 2: [6], 3: [9], 4: [8]}
    assert labels(picked(values, 2)) == [("min", 0), ("median", 1), ("max", 3), ("slow", 2)]
    assert labels(picked({0: [1], 1: [5], 2: [9]}, 1)) == [("min", 0), ("max", 2), ("slow", 1)]


def test_the_typical_iteration_is_one_in_which_nobody_is_slow() -> None:
    """Though the slow ones are more alike."""
    values = {0: [5, 6, 5, 4], 1: [9, 5, 9, 6], 2: [6, 7, 6, 5]}
    assert picked(values, 1, iterations=(0, 2)).looks[-1].iteration in (1, 3)
    of_slow = picked(values, 1, iterations=(0, 1, 2, 3)).looks
    assert len({each.iteration for each in of_slow}) == 2, "none is shown twice"


def test_the_typical_iteration_is_one_with_the_fewest_flagged_ranks() -> None:
    """Though those with more are more alike, or somebody is slow in every iteration."""
    values = {0: [5, 6, 5, 4], 1: [9, 5, 9, 6], 2: [6, 7, 6, 5]}
    always = picked(values, 1, iterations=(0, 1, 2, 3)).looks
    rest = {0, 1, 2, 3} - {always[0].iteration}
    usual = always[-1].iteration
    assert usual in rest
    crowded = Counter({number: 1 for number in rest}) + Counter([usual])
    looks = picked(values, 1, iterations=(0, 1, 2, 3), flagged=crowded).looks
    assert looks[0] == always[0]
    assert looks[-1].iteration in rest - {usual}


def test_the_verdict_says_which_iteration_to_look_at() -> None:
    """Though another one has the larger spread, in which nobody was found to be slow."""
    values = {0: [5, 5, 5, 5], 1: [5, 25, 6, 7], 2: [6, 6, 16, 6]}
    found = picked(values, 2, iterations=(2, 3))
    assert [each.iteration for each in found.looks] == [2, 0]
    assert found.looks[0].title == "Where rank 2 is slow: iteration 2 (also 3)"
    assert {each.worst.iteration for each in found.picks} == {2}


def test_a_rank_is_looked_at_where_no_other_one_stalls() -> None:
    """Though it exceeds the usual most there."""
    values = {0: [5, 5, 5, 5], 1: [7, 7, 9, 7], 2: [5, 5, 30, 5], 3: [5, 5, 5, 5]}
    found = picked(values, 2, iterations=(2,), also=(((1,), (0, 1, 2, 3)),))
    assert [each.iteration for each in found.looks[:2]] == [2, 0]
    assert found.looks[1].title == "Where rank 1 is slow: iteration 0 (also 1-3)"
    both = picked(values, 2, iterations=(0, 1, 2, 3), also=(((1,), (0, 1, 2, 3)),))
    assert [each.iteration for each in both.looks[:2]] == [2, 2]


def test_a_rank_is_looked_at_where_its_load_is_known() -> None:
    """Though it exceeds the others more in the first iteration, whose load is in no report."""
    values: dict[int, list[int | None]] = {0: [5, 5, 5], 1: [5, 5, 5], 2: [30, 9, 8]}
    for no_load, when, at in ((-1, (0, 1, 2), 0), (0, (0, 1, 2), 1), (0, (0,), 0)):
        found = picked(values, 2, iterations=when, no_load=no_load)
        assert found.looks[0].iteration == at


def test_ranks_that_hold_most_of_a_cost_are_looked_at() -> None:
    values: dict[int, list[int | None]] = {0: [1, 1, 1], 1: [5, 30, 5], 2: [5, 5, 9], 3: [5, 5, 5]}
    held: tuple[SlowSet, ...] = (((1,), (1,)), ((2,), (2,)))
    found = picked(values, leads=held)
    assert labels(found) == [("min", 0), ("median", 3), ("max", 1), ("leads", 2)]
    assert [each.title for each in found.picks] == ["min", "median", "max, leads", "leads"]
    assert [each.title for each in found.looks[:2]] == [
        "Where rank 1 takes longest: iteration 1",
        "Where rank 2 takes longest: iteration 2",
    ]
    named = [each.title for each in picked(values, 3, leads=held).picks]
    assert named == ["min", "median", "max", "slow"]


def test_of_one_iteration_none_is_typical() -> None:
    values = {0: [5], 1: [5], 2: [9]}
    assert [each.title for each in picked(values, 2).looks] == ["Where rank 2 is slow: iteration 0"]
    (given,) = picked(values, 2, more=(2,)).looks
    assert given.title == "Where rank 2 has more to do: iteration 0"
    [worst] = picked(values).looks
    assert worst.title == "Where they differ most: iteration 0"
    [longest] = picked({0: [5]}).looks
    assert longest.title == "The longest one: iteration 0"


def test_where_nobody_is_named_the_iterations_of_the_verdict_are_looked_at() -> None:
    """As where the transfer of all ranks is slow in some iterations."""
    values: dict[int, list[int | None]] = {0: [5, 5, 5, 5], 1: [5, 9, 5, 5], 2: [6, 6, 7, 6]}
    titles = [each.title for each in picked(values, affected=(2, 3)).looks]
    assert titles == ["Where they differ most: iteration 2", "A typical iteration: 0"]
    assert picked(values).looks[0].iteration == 1


def test_a_rank_is_looked_at_in_the_file_of_the_others() -> None:
    """Though another one stalls in all iterations that are there."""
    values = {0: [5, 5, 5, 5], 1: [7, 7, 7, 9], 2: [5, 5, 30, 20], 3: [5, 5, 5, 5]}
    files = {rank: ReportFiles((Path("a"), Path("b")), (0, 200)) for rank in values}
    also = (((1,), (0, 1, 2, 3)),)
    found = picked(values, 2, iterations=(2, 3), also=also, files=files)
    assert [each.iteration for each in found.looks[:2]] == [2, 3]


def test_a_rank_that_is_given_more_work_is_not_marked_as_slow() -> None:
    values = {0: [5], 1: [5], 2: [9], 3: [8]}
    for slow, more, marks in (
        ((2,), (), ["min", "median", "max, slow"]),
        ((2,), (2,), ["min", "median", "max, more work"]),
        ((3,), (3,), ["min", "median", "max", "more work"]),
    ):
        assert [each.title for each in picked(values, *slow, more=more).picks] == marks


def test_ranks_without_the_metric_are_not_picked() -> None:
    assert labels(picked({0: [None], 1: [4], 2: [7]})) == [("min", 1), ("max", 2)]
    with pytest.raises(UsageError, match="--metric work"):
        picked({0: [None], 1: [None]})


def test_windows_of_the_worst_and_the_typical_iteration() -> None:
    output = picked({0: [5, 5, 5, 5], 1: [5, 25, 6, 7], 2: [6, 6, 6, 6]})
    for each in output.picks:
        assert each.worst.iteration == 1
        assert (each.worst.start_ns, each.worst.end_ns) == (99, 199), "from the end before it"
        assert each.typical.iteration == 2


def test_the_typical_iteration_lasts_as_long_as_usual() -> None:
    """At its end, a run may wait for a rank that does no work in between."""
    wide = pl.DataFrame(
        [(rank, i, 5 + (i == 0), 900 if (rank, i) == (1, 2) else 100) for rank in range(3)
         for i in range(3)],
        schema=["rank", "iteration", "work_ns", "iteration_ns"], orient="row",
    )  # fmt: skip
    views = filled(wide.with_columns(view_start_ns=1, view_end_ns=2), RANK_ITERATIONS)
    files = {rank: ReportFiles((Path("r"),), (0,)) for rank in range(3)}
    found = picked_from(wide, views, files, dict.fromkeys(range(3), 0), [((2,), (1,))])
    assert found.looks[-1].iteration == 0


def test_a_window_holds_what_was_measured() -> None:
    """On the clock of the device, it may begin within the range of the iteration before."""
    rows = [(rank, i, 5, 100 + 70 * (i == 1)) for rank in range(3) for i in range(3)]
    wide = pl.DataFrame(rows, schema=["rank", "iteration", "work_ns", "iteration_ns"], orient="row")
    views = wide.with_columns(
        view_start_ns=pl.col("iteration") * 100, view_end_ns=pl.col("iteration") * 100 + 99
    )
    files = {rank: ReportFiles((Path("r"),), (0,)) for rank in range(3)}
    starts: dict[int, int | None] = dict.fromkeys(range(3), 0)
    found = picked_from(wide, filled(views, RANK_ITERATIONS), files, starts, [((2,), (1,))])
    assert {(each.worst.start_ns, each.worst.end_ns) for each in found.picks} == {(29, 199)}


def test_of_one_rank_the_longest_iteration_is_the_worst() -> None:
    [only] = picked({3: [5, 9, 6, 5]}).picks
    assert (only.worst.iteration, only.typical.iteration) == (1, 0)


def test_what_the_gui_opens(tmp_path: Path) -> None:
    for rank in range(3):
        (tmp_path / f"r {rank}.sqlite").write_bytes(b"s" * 10)
    output = picked({0: [1], 1: [2], 2: [3]}, folder=tmp_path)
    assert output.files == ()
    assert len(output.unopenable) == 3
    for rank in range(3):
        (tmp_path / f"r {rank}.nsys-rep").write_bytes(b"r" * 7)
    output = picked({0: [1], 1: [2], 2: [3]}, folder=tmp_path)
    assert output.unopenable == ()
    assert output.total_bytes == 21
    assert output.files == tuple(tmp_path / f"r {rank}.nsys-rep" for rank in range(3))
    assert shlex.split(open_command(output.files)) == ["nsys-ui", *map(str, output.files)]


def test_older_reports_are_opened_too(tmp_path: Path) -> None:
    (tmp_path / "r.qdrep").write_bytes(b"")
    assert openable_report(tmp_path / "r.sqlite") == tmp_path / "r.qdrep"
    assert openable_report(tmp_path / "other.sqlite") is None


def test_one_report_of_several_ranks_is_opened_once(tmp_path: Path) -> None:
    (tmp_path / "all.nsys-rep").write_bytes(b"r" * 7)
    wide = pl.DataFrame({"rank": [0, 1, 2], "iteration": [0] * 3, "work_ns": [1, 2, 3]})
    wide = wide.with_columns(iteration_ns=1)
    views = filled(wide.with_columns(view_start_ns=1, view_end_ns=2), RANK_ITERATIONS)
    files = dict.fromkeys(range(3), ReportFiles((tmp_path / "all.sqlite",), (0,)))
    output = picked_from(wide, views, files, {}, [])
    assert output.files == (tmp_path / "all.nsys-rep",)
    assert output.total_bytes == 7


@pytest.mark.slow
def test_windows_show_host_ranges_and_device_work(stored: MakeStored) -> None:
    """From the first host range's start to the last end on the device, both rows in sight."""
    job = stored("free_running")
    output = job.run.pick_reports()
    for each in output.picks:
        for window in (each.worst, each.typical):
            row = job.run.sql(
                f"select * from iterations where rank = {each.rank} "
                f"and iteration = {window.iteration}"
            ).row(0, named=True)
            assert window.start_ns <= row["start_ns"] < row["end_ns"] <= window.end_ns
            assert window.end_ns > row["end_ns"], "the device runs behind the host"


@pytest.mark.slow
def test_without_reductions_work_is_picked_by(stored: MakeStored) -> None:
    run = stored("planted", kind="balanced").run
    assert run.pick_reports().metric == "time_to_all_reduce"
    assert run.pick_reports(clock="host", metric="load").metric == "load"
    accumulation = stored("no_sync").run
    assert accumulation.pick_reports(iter_range=slice(4, 7)).metric == "work"


def test_what_follows_the_reduction_is_picked_by_work(stored: MakeStored) -> None:
    run = stored("planted", kind="persistent", where="optimizer").run
    picks, verdict = run.pick_reports(), run.imbalance().verdict
    assert (picks.metric, verdict.cause) == ("work", "optimizer")
    assert [each.rank for each in picks.picks if each.label == "max"] == [*verdict.ranks]


def test_metrics_nobody_has_are_refused(sample: Stored) -> None:
    with pytest.raises(UsageError, match="--metric idle"):
        sample.run.pick_reports(metric="idle")
    with pytest.raises(UsageError, match="--metric nonsense"):
        sample.run.pick_reports(metric="nonsense")


def test_slow_ranks_are_shown_beside_those_that_do_the_same_work() -> None:
    """The ranks of another stage of a pipeline do not show what a slow one lacks."""
    values: dict[int, list[int | None]] = {5: [1], 1: [2], 0: [3], 3: [4], 2: [5], 4: [9]}
    for peers, output in (
        (range(6), [("min", 5), ("median", 0), ("max", 4)]),
        ((2, 3, 4), [("min", 3), ("median", 2), ("max", 4)]),
        ((4, 5), [("min", 5), ("max", 4)]),
        ((4,), [("min", 5), ("median", 0), ("max", 4)]),
    ):
        roles = {rank: "stage 1" if rank in peers else "stage 0" for rank in values}
        assert labels(picked(values, 4, roles=roles)) == output
    pair = {rank: "stage 1" if rank in (3, 4) else "stage 0" for rank in values}
    none_beside = picked(values, 4, 3, roles=pair)
    assert labels(none_beside) == [("min", 5), ("median", 0), ("max", 4), ("slow", 3)]
    later = {rank: "stage 1" if rank in (0, 3) else "stage 0" for rank in values}
    both = picked(values, 4, also=(((3,), (0,)),), roles=later)
    assert labels(both) == [("min", 5), ("median", 1), ("max", 4), ("slow", 3)]
