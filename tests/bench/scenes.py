"""Verdicts on the scenes of `tests.jobs`: what was said, and what is right in it."""

from __future__ import annotations

import io
import json
import re
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from rankscope_cli.main import main as command_line

import rankscope
from rankscope.ingestion.finalize import compare_stored
from rankscope.store import Database
from tests.jobs import SCENES, Culprit, Job, Scene, lengths, play, write

Result = dict[str, Any]

LEAST_GAIN, UNSURE = 0.01, 0.003
"""Whoever saves less may not be accused; so near to it both answers are right."""

TOLERANCE, FLOOR = 0.25, 0.002
"""A claimed gain is right within this share of the truth, or this share of the run's time."""

BALANCED_BELOW, ROTATING_ABOVE = 0.04, 0.065
"""What evening everything out saves where only `balanced`, and only `rotating`, is right: the
method's border is 5 %, and its median of four ranks is not ours."""

ACCUSING = {"persistent", "transient", "periodic", "communication"}
"""Classes in which a host stands for its ranks; in others it is but said where something is."""

RANKS_IN_WORDS = re.compile(
    r"(?<!like )\branks? (\d+(?:(?:, and |, | and |-| to )\d+)*)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class SceneCase:
    """One run of a scene."""

    scene: str
    ranks: int
    seed: int

    @property
    def key(self) -> str:
        """What names the case among all."""
        return f"jobs-{self.scene}-{self.ranks}-{self.seed}"


def scene_cases(sizes: Iterable[int], seeds: int, only: str = "") -> Iterator[SceneCase]:
    """Every case of a run, small jobs first."""
    for ranks in sorted(sizes):
        for name, entry in SCENES.items():
            if ranks in entry.sizes and only in name:
                for seed in range(seeds):
                    yield SceneCase(name, ranks, seed)


class Truth:
    """How long a job's iterations take, and what healing would save; remembered in a file."""

    def __init__(self, job: Job, memory: Path) -> None:
        self.job, self.memory = job, memory
        self._known: dict[str, list[int]] = {}
        if memory.exists():
            self._known = json.loads(memory.read_text("utf-8"))

    def lengths(self, what: str, job: Job | None = None) -> list[int]:
        """Lengths of iterations of the job or a variant, ns."""
        if what not in self._known:
            self._known[what] = lengths(play(job or self.job, record=False).ends)
            self.memory.write_text(json.dumps(self._known), "utf-8")
        return self._known[what]

    def gain(self, what: str, job: Job, chosen: list[int]) -> float:
        """What a variant saves of the chosen iterations' time."""
        before, after = self.lengths("as it is"), self.lengths(what, job)
        whole = sum(before[i] for i in chosen)
        return (whole - sum(after[i] for i in chosen)) / whole

    def healing(self, ranks: Iterable[int], chosen: list[int]) -> float:
        """What healing some ranks saves."""
        healed = frozenset(ranks)
        if not healed:
            return 0.0
        return self.gain(f"without {sorted(healed)}", self.job.healed(healed), chosen)


def ask(command: str, db: Path, *options: str) -> dict[str, Any]:
    """The JSON answer of a command.

    Raises:
        RuntimeError: It fails.
    """
    out = io.StringIO()
    try:
        with redirect_stdout(out):
            command_line([command, "--db", str(db), "--format", "json", "--quiet", *options])
    except SystemExit as left:
        if left.code:
            raise RuntimeError(f"{command}: exit code {left.code}") from None
    answer: dict[str, Any] = json.loads(out.getvalue())
    return answer


def _stored(scene: Scene, db: Path) -> None:
    """Make the database of a scene's job, or judge the one that is there by the rules of today."""
    if db.exists():
        with Database.open(db, write=True) as database:
            compare_stored(database)
        return
    part = db.with_suffix(".part")
    for left in (part, part.with_name(part.name + ".wal")):
        left.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="jobs-") as folder:
        write(scene.job, play(scene.job), Path(folder))
        rankscope.ingest([folder], part, jobs=1)
    part.rename(db)


def judge_scene(case: SceneCase, keep: Path | None) -> Result:
    """What the verdict on a scene is, and what is right in it."""
    began = time.monotonic()
    scene = SCENES[case.scene].make(case.ranks, case.seed)
    with tempfile.TemporaryDirectory(prefix="jobs-") as folder:
        db = (keep or Path(folder)) / f"{case.key}-{scene.job.fingerprint:08x}.duckdb"
        result: Result = {"bench": "jobs", **asdict(case)}
        try:
            _stored(scene, db)
            answer, picks = ask("imbalance", db), ask("pick-reports", db)
            half = _half(scene, answer, db)
        except Exception as error:
            return result | {"failed": f"{type(error).__name__}: {error}", **_NOTHING_RIGHT}
        truth = Truth(scene.job, db.with_suffix(".truth.json"))
        result |= rights(scene, answer, picks, truth)
        result["broken"] += half
    return result | {"seconds": round(time.monotonic() - began, 1)}


def _half(scene: Scene, answer: Result, db: Path) -> list[str]:
    """Whether the second half of a steady run is answered otherwise than the whole."""
    whole, plants = answer["verdict"], scene.job.plants
    if not whole["ranks"] or any(plant.iterations or plant.amounts for plant in plants):
        return []
    if (whole["gain"] or 0) < LEAST_GAIN + UNSURE:
        return []  # half of the run may be on the other side of the border
    said = answer["run"]["iterations"]
    middle = (said["first"] + said["last"]) // 2
    half = ask("imbalance", db, "--iter-range", f"{middle}:")["verdict"]
    if {*half["ranks"]} & {*whole["ranks"]}:
        return []
    return [f"the second half leads with {half['class']} {half['ranks']}"]


_NOTHING_RIGHT: Result = {
    "class_right": False,
    "rank_right": False,
    "phase_right": None,
    "accused": False,
    "gain_right": None,
    "broken": ["no answer"],
}


def rights(scene: Scene, answer: Result, picks: Result, truth: Truth) -> Result:
    """What is right in an answer."""
    verdict, right, job = answer["verdict"], scene.answer, scene.job
    said = answer["run"]["iterations"]
    left_out = {*said.get("excluded_warmup", ())}
    chosen = [i for i in range(said["first"], said["last"] + 1) if i not in left_out]
    chosen = [i for i in chosen if i < job.iterations]
    gains = [truth.healing(culprit.ranks, chosen) for culprit in right.culprits]
    priced = list(zip(right.culprits, gains, strict=True))
    needed = [c for c, gain in priced if c.must and gain >= LEAST_GAIN + UNSURE]
    allowed = [c for c, gain in priced if gain >= LEAST_GAIN - UNSURE]
    leading = _named(job, verdict)
    everyone = leading.union(*(_named(job, each) for each in verdict.get("also") or ()))
    hosts = {
        host
        for each in (verdict, *(verdict.get("also") or ()))
        if each["class"] in ACCUSING
        for host in each.get("hosts") or ()
    }
    innocent = _innocent(job, right.spared, allowed, everyone, hosts)
    found = next((c for c in allowed if leading & {*c.ranks}), None)
    levelled = None if right.even is None else truth.gain("even", right.even, chosen)
    classes, phases = _acceptable(scene, found, needed, levelled)
    rank_right = not innocent and all(_covers(c, everyone, hosts) for c in needed)
    more_work = verdict.get("more_work_ranks")
    if right.more_work and more_work:
        rank_right = rank_right and {*more_work} == {*right.more_work}
    told_phase = phases and verdict["class"] not in ("balanced", "inconclusive")
    real = truth.healing(leading, chosen) if leading else None
    return {
        "said": _said(verdict),
        "truth": {
            "gains": {str(list(c.ranks)): round(gain, 4) for c, gain in priced},
            "even": levelled if levelled is None else round(levelled, 4),
            "of_named": real if real is None else round(real, 4),
            "classes": sorted(classes),
        },
        "class_right": verdict["class"] in classes,
        "rank_right": rank_right,
        "phase_right": verdict["cause"] in phases if told_phase else None,
        "accused": bool(innocent),
        "gain_right": _gain_right(verdict, real, levelled),
        "broken": list(_broken(verdict, picks)),
    }


def _said(verdict: Result) -> Result:
    keys = ("class", "ranks", "hosts", "cause", "gain", "gain_is_bound", "gain_all")
    also = [
        {key: each.get(key) for key in ("class", "ranks", "hosts", "cause", "gain_ns")}
        for each in verdict.get("also") or ()
    ]
    return {key: verdict.get(key) for key in keys} | {
        "more_work_ranks": verdict.get("more_work_ranks"),
        "also": also,
        "sentence": verdict["sentence"],
    }


def _named(job: Job, told: Result) -> set[int]:
    """Whom a verdict, or one of its others, accuses: its ranks, or all those of its hosts."""
    if told["ranks"] or told["class"] not in ACCUSING:
        return {*told["ranks"]}
    return {rank for host in told.get("hosts") or () for rank in job.on_host(host)}


def _innocent(
    job: Job,
    spared: tuple[int, ...],
    allowed: list[Culprit],
    everyone: set[int],
    hosts: set[str],
) -> set[int]:
    """Who is accused and should not be."""
    guilty = {rank for culprit in allowed for rank in culprit.ranks} | {*spared}
    guilty |= {rank for c in allowed if c.host for rank in job.on_host(c.host)}
    homes = {job.host_of(rank) for rank in guilty}
    strangers = {rank for host in hosts - homes for rank in job.on_host(host)}
    return (everyone - guilty) | strangers


def _covers(culprit: Culprit, everyone: set[int], hosts: set[str]) -> bool:
    return culprit.host in hosts or {*culprit.ranks} <= everyone


def _acceptable(
    scene: Scene, found: Culprit | None, needed: list[Culprit], levelled: float | None
) -> tuple[frozenset[str], frozenset[str]]:
    """Right classes and phases."""
    right = scene.answer
    if found is not None:
        return found.classes, found.phases
    if needed:
        return frozenset().union(*(c.classes for c in needed)), frozenset()
    classes = right.classes or frozenset({"balanced"})  # whoever is slow, it costs nothing
    classes |= frozenset().union(*(c.classes for c in right.culprits if not c.must))
    if levelled is not None and classes <= {"balanced", "rotating"}:
        classes = frozenset({"balanced"} if levelled < BALANCED_BELOW else ())
        classes |= {"rotating"} if levelled >= BALANCED_BELOW else set()
        classes |= {"balanced"} if levelled <= ROTATING_ABOVE else set()
    return classes, right.phases


def _near(claimed: float, real: float) -> bool:
    return abs(claimed - real) <= max(TOLERANCE * abs(real), FLOOR)


def _gain_right(verdict: Result, real: float | None, levelled: float | None) -> bool | None:
    """Whether the claimed gain is true: of whom is named, else of everything where it is known."""
    if real is not None:
        claimed = verdict["gain"]
        if claimed is None:
            return False
        if verdict.get("gain_is_bound"):
            return bool(claimed >= (1 - TOLERANCE) * real)
        return _near(claimed, real)
    claimed = verdict.get("gain" if verdict["class"] == "communication" else "gain_all")
    return None if levelled is None or claimed is None else _near(claimed, levelled)


def _broken(verdict: Result, picks: Result) -> Iterator[str]:
    """Which invariants of METHOD.md an answer breaks that need nothing but the answer."""
    also = verdict.get("also") or []
    named = {*verdict["ranks"]}.union(*(each["ranks"] for each in also))
    listed = named | {*(verdict.get("more_work_ranks") or ())}
    spoken = set(_spoken(verdict["sentence"]))
    if spoken - listed:
        yield f"the sentence names {sorted(spoken - listed)}, the document does not"
    picked = {pick["rank"] for pick in picks["picks"]}
    if verdict["ranks"] and len(named) <= 3 and not named <= picked:
        yield f"{sorted(named - picked)} are named and not picked"
    whole, gain = verdict.get("gain_all"), verdict["gain"]
    if whole is not None:
        if verdict["class"] == "balanced" and whole >= 0.05:
            yield f"balanced, but everything at its median would save {whole:.1%}"
        if gain is not None and not verdict.get("gain_is_bound") and gain > whole + 0.01:
            yield f"one saves {gain:.1%}, everything {whole:.1%}"
    if verdict["ranks"] and (gain is None or gain < LEAST_GAIN):
        yield f"{verdict['ranks']} are accused for a gain of {gain}"


def _spoken(sentence: str) -> Iterator[int]:
    """Ranks that a sentence names one by one or as a range."""
    for found in RANKS_IN_WORDS.finditer(sentence):
        parts = re.split(r", and |, | and ", found.group(1))
        for part in parts:
            ends = [int(number) for number in re.split(r"-| to ", part)]
            yield from range(ends[0], ends[-1] + 1)


# ---------------------------------------------------------------------- what is printed

TARGETS = {"right": 0.97, "accused": 0.005, "gain": 0.95}
"""Least share of runs with class, ranks and phase right; most with innocents accused; least with
the gain right."""


def wrong(result: Result) -> bool:
    """Whether class, ranks or phase of a verdict are."""
    return not (result["class_right"] and result["rank_right"]) or result["phase_right"] is False


def faulty(result: Result) -> bool:
    """Whether anything in an answer is wrong."""
    bad = result["accused"] or result["gain_right"] is False or result["broken"]
    return bool(wrong(result) or bad)


def table(results: list[Result]) -> str:
    """A row a scene, and one a number of ranks."""
    lines = [
        "| scene | runs | class right | ranks right | phase right | innocents accused "
        "| gain within a quarter | invariants broken |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    order = list(SCENES)
    by_scene = sorted(results, key=lambda result: order.index(result["scene"]))
    for name, group in groupby(by_scene, lambda result: str(result["scene"])):
        lines.append(_row(name.replace("_", " "), list(group)))
    for size, group in groupby(
        sorted(results, key=lambda result: int(result["ranks"])), lambda result: result["ranks"]
    ):
        lines.append(_row(f"*all with {size} ranks*", list(group)))
    return "\n".join(lines)


def _row(name: str, results: list[Result]) -> str:
    def count(right: str) -> str:
        known = [result[right] for result in results if result[right] is not None]
        return f"{sum(known)} of {len(known)}" if known else "–"

    broken = sum(bool(result["broken"]) for result in results)
    accused = sum(result["accused"] for result in results)
    rights = [count(right) for right in ("class_right", "rank_right", "phase_right")]
    cells = [name, str(len(results)), *rights, str(accused), count("gain_right"), str(broken)]
    return "| " + " | ".join(cells) + " |"


def totals(results: list[Result]) -> tuple[list[str], bool]:
    """The sums beside their targets, and whether all are met."""
    runs = max(1, len(results))
    right = sum(not wrong(result) for result in results) / runs
    accused = sum(result["accused"] for result in results)
    gains = [result["gain_right"] for result in results if result["gain_right"] is not None]
    gain = sum(gains) / len(gains) if gains else 1.0
    worthless = sum(
        result["accused"] and (result["truth"]["of_named"] or 0) < LEAST_GAIN
        for result in results
        if "truth" in result
    )
    broken = sum(bool(result["broken"]) for result in results)
    lines = [
        f"Class, ranks and phase right: {right:.1%} (target {TARGETS['right']:.0%}).",
        f"Innocents accused: {accused} of {runs} runs, {accused / runs:.1%} (target at most "
        f"{TARGETS['accused']:.1%}); {worthless} where it saves less than {LEAST_GAIN:.0%} "
        "(target 0).",
        f"Gain within a quarter of the truth: {gain:.1%} of {len(gains)} (target "
        f"{TARGETS['gain']:.0%}).",
        f"Invariants broken: in {broken} runs (target 0).",
    ]
    met = right >= TARGETS["right"] and accused / runs <= TARGETS["accused"] and not worthless
    return lines, met and gain >= TARGETS["gain"] and not broken
