"""What real files do: ranks, runs and clocks that mislead, cut files, steps without partners."""

import gzip
import json
import random
from codecs import BOM_UTF8
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rankscope
from rankscope.errors import ReportError
from rankscope.ingestion.check import check
from tests.cases import EXTRA_MS, PLAIN, assert_slow, codes, hint_of, read
from tests.forge import forge, scene
from tests.pytorch_job import GRADIENTS, Edit, Job, kernels, without, write
from tests.support import Cli, edit, mostly_slow


@pytest.mark.parametrize(
    ("stated", "alike"),
    mostly_slow([("rank", True), ("", False), ("[TP0{0}-EP0{0}] ", None), ("rank", False)], 3),
)
def test_one_file_of_all_ranks(tmp_path: Path, stated: str, alike: bool | None) -> None:
    """Ids of launches are unique in a process; `alike`: process ids are not; None: devices'."""
    folder = write(tmp_path / "parts", PLAIN)
    events = []
    for rank in (0, 1, 2, 3):
        trace = json.loads((folder / f"rank{rank}.pt.trace.json").read_text())
        for each in trace["traceEvents"]:
            apart = 1000 * (4 - rank) if stated else 1000 * rank
            each["pid"] += {True: -rank, None: 0, False: apart}[alike]
            if stated == "rank":
                each["args"]["rank"] = rank
            elif stated:
                each["pid"] = f"{stated.format(rank)}{each['pid']}"
            elif each["cat"] == "kernel":
                each["args"]["device"] = rank
            events.append(each)
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "merged.json").write_text(json.dumps({"traceEvents": events}))
    run = read(tmp_path / "job")
    assert_slow(run)
    assert ("ranks-by-order" in codes(run)) is not bool(stated)


@pytest.mark.slow
def test_a_helper_with_ranges_like_those_of_its_parent_is_no_rank(tmp_path: Path) -> None:
    job = scene("planted", ranks=4, iterations=6, kind="persistent")
    forge(job, tmp_path / "job")
    for path in (tmp_path / "job").glob("*.sqlite"):
        edit(
            path,
            "INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid) "
            "SELECT start, end, eventType, text, globalTid + (5 << 24) FROM NVTX_EVENTS",
        )
    verdict = read(tmp_path / "job").compare().verdict
    assert (verdict.kind, verdict.ranks) == ("persistent", (3,))


@pytest.fixture
def unpaired(tmp_path: Path) -> Path:
    """Every few steps of a rank reduce with another collective, and never in the same steps."""

    def odd(rank: int, trace: dict[str, Any]) -> None:
        without("ProfilerStep")(rank, trace)
        calls = [each for each in kernels(trace) if "Seq" in each["args"]]
        for each in calls[:: 3 + rank % 2]:
            each["args"]["Collective name"] = "_allgather_base"

    job = replace(PLAIN, ranks=2, slow=1, steps=40)
    return write(tmp_path / "job", job, odd)


@pytest.mark.parametrize("options", mostly_slow([{"iteration": "^Optimizer"}, {}]))
def test_iterations_that_cannot_be_paired_are_captures(
    unpaired: Path, options: dict[str, str]
) -> None:
    run = read(unpaired, **options)
    assert run.compare().facts.iterations == (0,)
    assert "match at no shift" in codes(run)["capture-whole"]


def counted_from(start: int, *ranks: int, since: int = 0) -> Edit:
    """An edit: these ranks count their steps from another number, since a step."""

    def edit(rank: int, trace: dict[str, Any]) -> None:
        for each in trace["traceEvents"]:
            name, _, number = each["name"].partition("#")
            if rank in ranks and name == "ProfilerStep" and int(number) >= since:
                each["name"] = f"ProfilerStep#{int(number) + start}"

    return edit


@pytest.mark.slow
@pytest.mark.parametrize("when", mostly_slow(["at once", "with gaps", "later"], 2))
def test_numbers_that_no_rank_shares(tmp_path: Path, cli: Cli, when: str) -> None:
    """One step is counted otherwise on every rank; or ranks were recorded one after the other."""

    def apart(rank: int, trace: dict[str, Any]) -> None:
        counted_from(100 * rank, rank)(rank, trace)
        if when == "with gaps" and rank == 1:
            without("ProfilerStep#103")(rank, trace)
        if when == "later":
            trace["baseTimeNanoseconds"] += rank * 10**10

    folder = write(tmp_path / "job", replace(PLAIN, steps=5), apart)
    assert cli("check", folder).code == (3 if when == "later" else 0)
    run = read(folder)
    if when == "at once":
        assert "rank 1 by -100, rank 2 by -200, rank 3 by -300" in codes(run)["windows-shifted"]
        assert run.compare().facts.iterations == tuple(range(1, 5))
        assert_slow(run)
    elif when == "with gaps":
        assert "share no number of an iteration" in codes(run)["capture-whole"]
        assert run.compare().verdict.ranks == (2,)
    else:
        with pytest.raises(ReportError, match="share no step"):
            run.compare()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "start", "ranks", "clocks_s"),
    mostly_slow(
        [(12, 1, (1,), 0), (24, 1, (1,), 7), (6, 1, (0,), 0), (12, 5, (3,), 0), (12, 1, (0, 1), 0)]
    ),
)
def test_a_rank_that_counts_its_steps_from_another_number(
    tmp_path: Path, steps: int, start: int, ranks: tuple[int, ...], clocks_s: int
) -> None:
    """The lengths of the steps tell, whatever the clocks; with few steps the clocks must agree."""

    def otherwise(rank: int, trace: dict[str, Any]) -> None:
        counted_from(start, *ranks)(rank, trace)
        trace["baseTimeNanoseconds"] += rank * clocks_s * 10**9

    folder = write(tmp_path / "job", replace(PLAIN, steps=steps), otherwise)
    checked = check([folder], jobs=1)
    assert any("windows-shifted" in {each.code for each in of.problems} for of in checked)
    assert all(of.usable for of in checked)
    run = read(folder)
    first = start if len(ranks) == 2 else 0  # two of four: the numbers of rank 0 count
    assert run.compare().facts.iterations == tuple(range(max(first, 1), steps + first))
    assert codes(run)["windows-shifted"].startswith("ranks count their steps from different")
    assert_slow(run)
    timeline = run.timeline([*ranks], [steps - 1])
    assert {*timeline.collectives["iteration"]} == {steps - 1}


@pytest.mark.slow
def test_a_clock_that_is_off_by_a_step_is_no_other_number(tmp_path: Path) -> None:
    """Lengths of steps agree at the recorded numbers; where they tell nothing, that is said."""
    draw = random.Random(0)

    def late(rank: int, trace: dict[str, Any]) -> None:
        trace["baseTimeNanoseconds"] += 23_511_000 if rank == 1 else 0

    def unsteady(rank: int, trace: dict[str, Any]) -> None:
        late(rank, trace)
        for each in kernels(trace) if rank == 1 else ():
            if "Seq" in each["args"]:
                each["dur"] = round(each["dur"] + draw.uniform(0, 400), 3)

    assert not {"windows-shifted", "steps-doubtful"} & {
        *codes(read(write(tmp_path / "a", PLAIN, late)))
    }
    said = codes(read(write(tmp_path / "b", PLAIN, unsteady)))
    assert "windows-shifted" not in said
    assert "rank 1 had other steps" in said["steps-doubtful"]
    assert "windows-shifted" not in codes(
        read(write(tmp_path / "c", replace(PLAIN, steps=4), unsteady))
    ), "no other number leaves enough steps in common"


@pytest.mark.slow
def test_few_steps_with_common_numbers_tell_nothing(tmp_path: Path) -> None:
    """Three of seven numbers are common; by the clocks they are of other steps."""
    run = read(write(tmp_path / "job", replace(PLAIN, steps=5), counted_from(2, 1)))
    assert "rank 1 had other steps" in codes(run)["steps-doubtful"]
    assert run.compare().verdict.kind == "inconclusive"


@pytest.mark.slow
def test_numbers_that_skip_one_on_a_rank_pair_nothing(tmp_path: Path) -> None:
    job = replace(PLAIN, steps=24)
    run = read(write(tmp_path / "job", job, counted_from(1, 1, since=9)))
    assert "different steps on rank 1" in codes(run)["capture-whole"]
    assert run.compare().verdict.ranks == (2,)


@pytest.mark.slow
def test_ranks_that_cannot_be_paired_come_one_after_the_other(
    unpaired: Path, tmp_path: Path
) -> None:
    """While the first report is there, and when it has gone."""
    first, second = sorted(unpaired.iterdir())
    added = tmp_path / "b.duckdb"
    for path in (first, second):
        run = rankscope.ingest([path], added, iteration="^Optimizer", jobs=1)
    assert run.compare().facts.iterations == (0,)
    assert "match at no shift" in codes(run)["capture-whole"]
    assert not run.compare().verdict.sentence.startswith("Cannot")
    gone = tmp_path / "c.duckdb"
    alone = rankscope.ingest([first], gone, iteration="^Optimizer", jobs=1).compare().facts
    first.unlink()
    with pytest.raises(ReportError, match="is not as it was"):
        rankscope.ingest([second], gone, iteration="^Optimizer", jobs=1)
    assert rankscope.open_run(gone).compare().facts == alone, "the database is as before"


NAMES = [
    "run-1718.32-TP-{}-DP-0-PP-0.trace.json",
    "rank{}/trace.json",
    "host_{}_of.json",
    "tp_rank_{}_dp_rank_0.json",
    "node_rank_0_local_rank_{}.json",
    "worker-{}/node_771.1795269835229.pt.trace.json",
]


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_slow(NAMES))
def test_ranks_in_names(tmp_path: Path, name: str) -> None:
    def silent(_rank: int, trace: dict[str, Any]) -> None:
        del trace["distributedInfo"]

    for rank in range(4):
        (tmp_path / "job" / name.format(rank)).parent.mkdir(parents=True, exist_ok=True)
    assert_slow(read(write(tmp_path / "job", PLAIN, silent, name)))


GRIDS = {
    "node{0}/gpu{1}.json": None,
    "host{0}_local_rank_{1}.json": None,
    "node0{3}/gpu{1}.json": None,
    "node{0}/gpu{4}.json": None,  # counted over all nodes
    "rack{0}/card{4}.json": None,
    "pod-{0}/gpu{1}.json": None,
    "node-{0}/rank{1}.json": None,
    "run.32-TP-{1}-DP-{0}.trace.json": r"TP\-(?P<rank2>\d+).*DP\-(?P<rank1>\d+)",
    "dp{0}/t/tp{1}.json": r"dp(?P<rank1>\d+).*tp(?P<rank2>\d+)",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_slow([*GRIDS], 1))
def test_two_numbers_of_names_are_one_rank(tmp_path: Path, name: str) -> None:
    """Of nodes and devices as launchers count; else in the order that the user gives."""
    grid = {(node, device): 2 * node + device for node in (0, 1) for device in (0, 1)}
    folder = named(
        tmp_path,
        {name.format(*place, 0, place[0] + 1, rank): rank for place, rank in grid.items()},
    )
    if (pattern := GRIDS[name]) is None:
        run = read(folder)
        assert ("rank-assumed" in codes(run)) is ("{4}" not in name)
    else:
        assert f"--rank-pattern '{pattern}'" in hint_of(folder)
        run = read(folder, rank_pattern=pattern)
    assert_slow(run)
    assert run.timeline([2], [3]).ranks["rank"].to_list() == [2]


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_slow(["rank{}.json", "gpu{}/trace.json"]))
def test_local_ranks_that_repeat_on_hosts_are_counted_over_them(tmp_path: Path, name: str) -> None:
    """Hosts have no numbers; without their names in the traces the reports are of two runs."""

    def at(rank: int) -> str:
        return ("gpu-a-9", "gpu-a-17")[rank // 2]

    def hosted(rank: int, trace: dict[str, Any]) -> None:
        nameless(rank, trace)
        known = {"host_name": f"{at(rank)}.cluster", **trace}
        trace.clear()
        trace.update(known)

    names = {f"{at(rank)}/{name.format(rank % 2)}": rank for rank in range(4)}
    run = read(named(tmp_path, names, hosted))
    assert_slow(run)
    assert "rank-assumed" in codes(run)
    assert "--rank N" in hint_of(named(tmp_path / "b", names))


def test_a_device_is_no_rank_where_nodes_are_incomplete(tmp_path: Path) -> None:
    names = {"node0/gpu0.json": 0, "node0/gpu1.json": 1, "node1/gpu1.json": 3}
    pattern = r"node(?P<rank1>\d+).*gpu(?P<rank2>\d+)"
    assert f"--rank-pattern '{pattern}'" in hint_of(named(tmp_path, names))
    assert {*read(tmp_path / "job", rank_pattern=pattern).compare().tables.ranks["rank"]} == {
        0, 1, 3,
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("event", mostly_slow(["groups", "rank"]))
def test_events_tell_the_rank_where_names_are_a_grid(tmp_path: Path, event: str) -> None:
    """The rank is the only one that is a member of all its groups; or an argument says it."""

    def output(rank: int, trace: dict[str, Any]) -> None:
        nameless(rank, trace)
        across = [[rank // 2 * 2, rank // 2 * 2 + 1], [rank % 2, rank % 2 + 2]]
        for nth, each in enumerate(kernels(trace)):
            if event == "rank":
                each["args"]["rank"] = rank
            elif "Seq" not in each["args"]:
                each["args"]["Process Group Name"] = f"group {nth % 2}"
                each["args"]["Process Group Ranks"] = str(across[nth % 2])

    names = {f"TP-{rank // 2}-DP-{rank % 2}.json": rank for rank in range(4)}
    assert_slow(read(named(tmp_path, names, output)))


def nameless(_rank: int, trace: dict[str, Any]) -> None:
    """Neither the trace nor its events say a rank."""
    del trace["distributedInfo"]
    for each in kernels(trace):
        each["args"].pop("Process Group Ranks", None)


def named(tmp_path: Path, names: dict[str, int], edit: Edit = nameless) -> Path:
    """The usual job's reports of some ranks, by these names."""
    made = write(tmp_path / "made", PLAIN, edit)
    for name, rank in names.items():
        (tmp_path / "job" / name).parent.mkdir(parents=True, exist_ok=True)
        (made / f"rank{rank}.pt.trace.json").rename(tmp_path / "job" / name)
    return tmp_path / "job"


def test_a_hint_has_a_pattern_that_fits_the_path(tmp_path: Path) -> None:
    def silent(_rank: int, trace: dict[str, Any]) -> None:
        del trace["distributedInfo"]

    job = replace(PLAIN, ranks=2, steps=2)
    folder = write(tmp_path / "job", job, silent, "TP-{}-DP-7-x.json")
    for path in folder.iterdir():  # 3 and 4: no number counts the reports from 0
        path.rename(path.with_name(path.name.replace("TP-0", "TP-3").replace("TP-1", "TP-4")))
    assert r"--rank-pattern 'TP\-(?P<rank>\d+)'" in hint_of(folder)
    for path, day in zip(sorted(folder.iterdir()), "34", strict=True):
        path.rename(folder / f"2026-05-0{day}_x.json")
    assert r"--rank-pattern '2026\-05\-(?P<rank>\d+)'" in hint_of(folder)
    for path, letter in zip(sorted(folder.iterdir()), "ab", strict=True):
        path.rename(folder / f"{letter}.json")
    assert "'rank_(?P<rank>" in hint_of(folder), "an example: no number differs"


@pytest.mark.slow
@pytest.mark.parametrize(("late_s", "slew"), mostly_slow([(86_400, 5e-4), (300, 0)]))
def test_a_hosts_clock_does_not_part_a_job(
    tmp_path: Path, cli: Cli, late_s: int, slew: float
) -> None:
    def late(rank: int, trace: dict[str, Any]) -> None:
        trace["host_name"] = f"node{rank // 2}"
        trace["baseTimeNanoseconds"] += late_s * 10**9 if rank > 1 else 0
        for each in trace["traceEvents"] if rank > 1 else ():
            each |= {name: round(each[name] * (1 + slew), 3) for name in ("ts", "dur")}

    folder = write(tmp_path / "job", PLAIN, late)
    assert cli("check", folder).code == 0
    run = read(folder)
    assert_slow(run)
    assert f"{late_s} s ahead" in codes(run)["clock-wrong"]
    assert "only if ranks 2-3 and the others are of one run" in run.compare().verdict.sentence


@pytest.mark.parametrize("longer", mostly_slow([1.002, 1.2]))
def test_halves_of_two_runs_accuse_nobody(tmp_path: Path, cli: Cli, longer: float) -> None:
    """Ranks 2 and 3 are of a run one day later, whose steps are a little longer."""

    def other(rank: int, trace: dict[str, Any]) -> None:
        trace["host_name"] = f"node{rank // 2}"
        if rank > 1:
            trace["baseTimeNanoseconds"] += 86_400 * 10**9
            for each in trace["traceEvents"]:
                each["ts"] *= longer
                each["dur"] *= longer

    folder = write(tmp_path / "job", PLAIN, other)
    assert "ingest each job alone if these are two" in cli("check", folder).out
    verdict = read(folder).compare().verdict
    assert (verdict.kind, verdict.ranks) == ("inconclusive", ())
    assert "ranks 2-3 seem to be of another run" in verdict.sentence


@pytest.mark.slow
def test_times_in_another_unit_are_refused(tmp_path: Path, cli: Cli) -> None:
    def nanoseconds(rank: int, trace: dict[str, Any]) -> None:
        for each in trace["traceEvents"] if rank == 1 else ():
            each |= {"ts": 1000 * each["ts"], "dur": 1000 * each["dur"]}

    folder = write(tmp_path / "job", replace(PLAIN, steps=6), nanoseconds)
    cli("ingest", folder).refused(3, "rank 1 pass 1000 times as fast")


@pytest.mark.parametrize("first", mostly_slow(["packed", "plain"]))
def test_packed_copies_elsewhere_are_left_out_in_any_order(
    tmp_path: Path, cli: Cli, first: str
) -> None:
    plain = write(tmp_path / "plain", PLAIN)
    (tmp_path / "packed").mkdir()
    for path in plain.iterdir():
        content = gzip.compress(path.read_bytes())
        (tmp_path / "packed" / f"{path.name}.gz").write_bytes(content)
    for again in (tmp_path / first, plain, tmp_path / "packed", tmp_path):
        done = cli("ingest", again, "--db", "a.duckdb", "--format", "json").document
        used = [each for each in done["reports"] if each["status"] != "skipped"]
        assert {Path(each["path"]).parent.name for each in used} <= {first}
    assert_slow(rankscope.open_run("a.duckdb"))
    assert len(used) == len(done["reports"]) / 2
    assert_slow(read(tmp_path))


@pytest.mark.slow
def test_a_packed_report_that_cannot_be_read_is_reported(tmp_path: Path, cli: Cli) -> None:
    folder = write(tmp_path / "job", replace(PLAIN, steps=3))
    path, other = (folder / f"rank{rank}.pt.trace.json" for rank in (3, 1))
    packed = path.rename(folder / f"{path.name}.zst")
    other.with_suffix(".json.xz").touch()  # beside the report
    (folder / "old.sqlite.xz").touch()
    for named in (folder, packed):
        cli("ingest", named).refused(3, f"unpack it: unzstd {packed}")
    assert "old.sqlite" not in cli("check", folder).out
    cli("ingest", folder, "--on-error", "skip")
    assert len(rankscope.open_run("rankscope.duckdb").iterations()["rank"].unique()) == 3


def in_halves(_rank: int, trace: dict[str, Any]) -> None:
    """Each event is one of its begin and one of its end."""
    halves = []
    for nth, each in enumerate(trace["traceEvents"]):
        begin, duration = each["ts"], each.pop("dur")
        place = {"pid": each["pid"], "tid": each["tid"], "ts": round(begin + duration, 3)}
        halves += [
            (begin, 1, nth, {**each, "ph": "B"}),
            (place["ts"], 0, -nth, {**place, "ph": "E"}),
        ]
    lone = {"pid": 0, "tid": 0, "ts": 0, "cat": "cpu_op", "name": "x"}
    halves += [(0, order, 0, {**lone, "ph": half}) for order, half in enumerate("EB")]
    trace["traceEvents"] = [each for *_, each in sorted(halves, key=lambda half: half[:3])]


@pytest.mark.slow
def test_begins_and_ends_are_events_of_their_own(tmp_path: Path) -> None:
    run = read(write(tmp_path / "job", PLAIN, in_halves))
    assert_slow(run)
    assert "2 events without" in codes(run)["rows-broken"], "one has no begin, one no end"


@pytest.mark.slow
def test_a_bare_list_of_events_is_a_trace(tmp_path: Path) -> None:
    folder = write(tmp_path / "job", PLAIN)
    for path in folder.iterdir():
        path.write_text(json.dumps(json.loads(path.read_text())["traceEvents"]))
    assert_slow(read(folder))


@pytest.mark.slow
def test_events_of_unknown_devices_are_counted(tmp_path: Path) -> None:
    def strange(_rank: int, trace: dict[str, Any]) -> None:
        for each in kernels(trace)[::3]:
            each["cat"] = "mtia_insight"

    run = read(write(tmp_path / "job", PLAIN, strange))
    assert codes(run)["part-unread"].endswith("left out: mtia_insight (32)")
    assert "33 %" in codes(run)["records-missing"]
    assert run.compare().verdict.kind == "inconclusive"


@pytest.mark.slow
def test_a_hint_names_the_place_of_the_rank_where_all_traces_claim_one(tmp_path: Path) -> None:
    def zero(_rank: int, trace: dict[str, Any]) -> None:
        trace["distributedInfo"]["rank"] = 0

    folder = write(tmp_path / "job", PLAIN, zero)
    pattern = r"rank(?P<rank>\d+)"
    assert f"--rank-pattern '{pattern}'" in hint_of(folder)
    assert_slow(read(folder, rank_pattern=pattern))


def test_a_byte_order_mark_is_no_damage(tmp_path: Path) -> None:
    folder = write(tmp_path / "job", PLAIN)
    for path in folder.iterdir():
        path.write_bytes(BOM_UTF8 + path.read_bytes())
    assert_slow(read(folder))


@pytest.mark.slow
def test_a_failed_ingest_says_what_it_stored(tmp_path: Path) -> None:
    folder = write(tmp_path / "job", replace(PLAIN, steps=3))
    (folder / "rank3.pt.trace.json").write_text('{"schemaVersion": 1, "traceEvents": [{"a": 1}]}')
    assert "3 reports are stored in" in hint_of(folder)


def test_the_usual_job_is_right_without_warnings(tmp_path: Path) -> None:
    run = read(write(tmp_path / "job", Job(between=GRADIENTS)))
    assert_slow(run)
    assert not run.compare().verdict.gain_is_bound
    assert {*codes(run)} == {"phases-from-operators"}


@pytest.mark.slow
def test_steps_without_ranges_are_of_no_iteration(tmp_path: Path) -> None:
    def gone(rank: int, trace: dict[str, Any]) -> None:
        if rank == 1:
            without("ProfilerStep#3", "ProfilerStep#4", "ProfilerStep#9")(rank, trace)

    run = read(write(tmp_path / "job", PLAIN, gone))
    assert run.compare().facts.iterations == (1, 2, 5, 6, 7, 8, 10, 11)
    assert "iteration-cut" not in codes(run)
    assert_slow(run)
    most = run.iterations(clock="gpu").filter(rank=1)["backward_ns"].max()
    assert isinstance(most, int)
    assert most < 11e6


@pytest.mark.slow
@pytest.mark.parametrize("wrong", mostly_slow([3, 2, 600]))
def test_a_wrong_number_costs_its_step(tmp_path: Path, wrong: int) -> None:
    def edit(rank: int, trace: dict[str, Any]) -> None:
        for each in trace["traceEvents"] if rank == 1 else ():
            if each["name"] == "ProfilerStep#4":
                each["name"] = f"ProfilerStep#{wrong}"

    run = read(write(tmp_path / "job", PLAIN, edit))
    assert {*range(1, 12)} - {*run.compare().facts.iterations} == {4}
    assert_slow(run)


def in_epochs_of_six(rank: int, trace: dict[str, Any]) -> None:
    """Numbers of steps start over after 5; rank 1 lacks its first step of that number."""
    if rank == 1:
        without("ProfilerStep#5")(rank, trace)
    for each in trace["traceEvents"]:
        name, _, number = each["name"].partition("#")
        if name == "ProfilerStep":
            each["name"] = f"ProfilerStep#{int(number) % 6}"


@pytest.mark.slow
def test_an_epochs_last_step_that_is_missing_is_of_no_iteration(tmp_path: Path) -> None:
    run = read(write(tmp_path / "job", PLAIN, in_epochs_of_six))
    assert run.compare().facts.iterations == (1, 2, 3, 4, *range(6, 12))
    assert_slow(run)
    assert run.compare().verdict.named == (2,)


@pytest.mark.slow
def test_numbers_that_start_over_at_different_steps_pair_nothing(tmp_path: Path) -> None:
    """No other epoch has the step that is missing: it may as well have been none."""
    run = read(write(tmp_path / "job", replace(PLAIN, steps=11), in_epochs_of_six))
    assert "start over" in codes(run)["capture-whole"]
    verdict = run.compare().verdict
    assert (verdict.kind, verdict.named) == ("persistent", (2,))
    assert not verdict.gain_is_bound
    before_the_first_collective = 1  # of 11 steps, nothing is compared
    assert verdict.gain_ns == pytest.approx(
        (11 - before_the_first_collective) * EXTRA_MS * 1e6, rel=0.02
    )


@pytest.mark.parametrize("late_us", [0, 1900])
def test_what_was_before_the_first_step_is_reported(tmp_path: Path, late_us: int) -> None:
    """A single step, which a rank begins late: it did something else before."""

    def late(rank: int, trace: dict[str, Any]) -> None:
        for each in trace["traceEvents"]:
            if rank == 1 and each["name"].startswith("ProfilerStep"):
                each["ts"] = round(each["ts"] + late_us, 3)
                each["dur"] = round(each["dur"] - late_us, 3)

    run = read(write(tmp_path / "job", Job(steps=1, first=7), late))
    said = codes(run).get("began-apart", "")
    assert ("up to 1.9" in said and "rank 1 last" in said) is bool(late_us), said


@pytest.mark.slow
@pytest.mark.parametrize("unnamed", mostly_slow([1, 3]))
def test_reports_without_names_beside_named_ones(tmp_path: Path, unnamed: int) -> None:
    """Few of them are left out; many make each capture one iteration. It is never an error."""

    def edit(rank: int, trace: dict[str, Any]) -> None:
        if rank < unnamed:
            without("ProfilerStep", "Optimizer", "Distributed")(rank, trace)
            events = [each for nth, each in enumerate(trace["traceEvents"]) if nth % 7]
            trace["traceEvents"] = events[::3] + [e for e in events if "Seq" in e["args"]]

    run = read(write(tmp_path / "job", replace(PLAIN, slow=3), edit))
    ranks = {*run.compare().tables.ranks["rank"]}
    if unnamed == 1:
        assert ranks == {1, 2, 3}
        assert len(run.compare().facts.iterations) > 1
        assert "missing-ranks" in codes(run)
    else:
        assert ranks == {0, 1, 2, 3}
        assert run.compare().facts.iterations == (0,)
        said = codes(run)["capture-whole"]
        assert "3 reports (rank0.pt.trace.json and 2 more) have no ranges named" in said
