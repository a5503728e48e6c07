"""The default comparison of a run, cached in its database.

The time of a comparison grows with the number of collectives. So that answers come at once, an
ingest compares its run with the default options and stores the result: `to_tables`. `load` returns
it, and `stages.compare` takes from it the results that other options do not change.

The fingerprint identifies the code, the options and the reports of the answers: if any of them
differs, nothing is loaded. With `RANKSCOPE_CACHE=0` in the environment nothing is loaded either.
"""

import hashlib
import logging
import os
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import msgspec
import polars as pl
from msgspec import Struct

from rankscope.compare.comparison import Comparison, Outliers, Summary
from rankscope.errors import DatabaseError
from rankscope.judge.claims import Story
from rankscope.match.records import ClockFit, Clocks, Matching, MatchSummary, ReusedScope, Roles
from rankscope.match.selection import scope_of
from rankscope.model.compared_tables import COMPARED_TABLES, WAITED
from rankscope.model.kinds import Clock
from rankscope.model.metrics import METRICS
from rankscope.model.options import Options
from rankscope.model.reports import RunWarning
from rankscope.model.results import Efficiency, MetricSummary, Verdict
from rankscope.store.connection import REBUILD_HINT
from rankscope.store.migrations import SCHEMA_VERSION
from rankscope.store.tables import RunTables
from rankscope.util.source_digest import OF_ANSWERS, source_digest

PACKAGE = Path(__file__).parents[1]

VARIABLE = "RANKSCOPE_CACHE"
"""Environment variable that turns the cache off if it is 0."""

OF_RANK = ("rank", "ranks", "more_work_ranks", "holders", "members", "blind_ranks")
"""Fields of answers that hold ranks."""

FURTHEST = 2**62
"""Largest number in answers, ns."""

log = logging.getLogger("rankscope.compare")


class Answers(Struct, frozen=True):
    """The cached answers that are no tables: the rows of the table `answers`, as JSON.

    `calls` and `call_iterations` are of `MatchSummary`, `middle_ns` and `method` of `Clocks`,
    `roles` to `replicas` of `Roles`, `flag_metric` and `story` of `Outliers`. `replayed`: whether
    the table `what_if` is stored.
    """

    fingerprint: str
    scope: ReusedScope
    calls: int
    call_iterations: int
    middle_ns: int
    method: str
    roles: dict[int, str]
    roles_source: str
    replicas: bool
    began: RunWarning | None
    flag_metric: str | None
    story: Story | None
    verdict: Verdict
    metrics: dict[str, MetricSummary]
    efficiency: Efficiency | None
    replayed: bool


def fingerprint(options: Options, reports: pl.DataFrame) -> str:
    """Text that differs if the code, the options or the reports of cached answers differ.

    Args:
        options: how the ranks were compared.
        reports: the table `reports`. A report that was moved is the same one.
    """
    state = "\n".join(sorted(map(repr, reports.drop("path").iter_rows())))
    code = source_digest(PACKAGE, OF_ANSWERS)
    parts = (code, pl.__version__, str(SCHEMA_VERSION), repr(options), state)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def to_tables(comparison: Comparison) -> dict[str, pl.DataFrame]:
    """The default comparison as `COMPARED_TABLES`, without the metric table."""
    matching, summary = comparison.matching, comparison.summary
    clocks = matching.clocks
    answers = Answers(
        fingerprint=fingerprint(comparison.options, comparison.tables.reports),
        scope=comparison.scope.reused(),
        calls=matching.summary.calls,
        call_iterations=matching.summary.iterations,
        middle_ns=clocks.middle_ns,
        method=clocks.method,
        roles=comparison.roles.of,
        roles_source=comparison.roles.source,
        replicas=comparison.roles.replicas,
        began=comparison.began,
        flag_metric=comparison.outliers.metric,
        story=comparison.outliers.story,
        verdict=comparison.verdict,
        metrics=summary.metrics,
        efficiency=summary.efficiency,
        replayed=summary.what_if is not None,
    )
    values = {name: _encoded(getattr(answers, name)) for name in Answers.__struct_fields__}
    fits = [
        (rank, fit.offset_ns, fit.drift_ppm, fit.spread_ns) for rank, fit in clocks.fits.items()
    ]
    return {
        "answers": pl.DataFrame({"name": [*values], "value": [*values.values()]}),
        "clocks": pl.DataFrame(fits, schema=COMPARED_TABLES["clocks"].schema, orient="row"),
        "communicators": matching.groups,
        "streams": matching.streams,
        "unmatched": matching.summary.unmatched,
        "scores": comparison.scores.join(comparison.waits(), on="rank", how="left"),
        "waits_of_all": comparison.waits_of_all(),
        "by_iteration": summary.by_iteration,
        **({} if summary.what_if is None else {"what_if": summary.what_if}),
    }


def load(tables: RunTables, stored: Callable[[str], pl.DataFrame | None]) -> Comparison | None:
    """The default comparison of a run; None if it is not cached, or was made by other code.

    Args:
        stored: gives one of `COMPARED_TABLES`; None if the database lacks it.
    """
    if os.environ.get(VARIABLE) == "0":
        log.info("%s: answers are computed: %s=0", tables.name, VARIABLE)
        return None
    return cached_comparison(tables, stored)


def cached_comparison(
    tables: RunTables, stored: Callable[[str], pl.DataFrame | None]
) -> Comparison | None:
    """`load`, whatever the environment says.

    Raises:
        DatabaseError: the cached answers are of this code, but contradict the tables.
    """
    answers = cached_answers(tables, stored("answers"))
    if answers is None:
        return None
    unused = {"rank_iterations", "answers", *(() if answers.replayed else ("what_if",))}
    frames = {name: stored(name) for name in COMPARED_TABLES if name not in unused}
    present = {name: frame for name, frame in frames.items() if frame is not None}
    if len(present) < len(frames):
        log.info("%s: answers are computed: tables of the cached ones are missing", tables.name)
        return None
    if (*present["by_iteration"]["iteration"],) != answers.scope.selection.numbers:
        raise _damaged(tables, "iterations that are not compared")
    if answers.replayed and "all" not in present["what_if"]["kind"]:
        raise _damaged(tables, "no ideal time")
    log.info("%s: answers are cached", tables.name)
    return _comparison(tables, answers, present)


def cached_answers(tables: RunTables, stored: pl.DataFrame | None) -> Answers | None:
    """The rows of the table `answers`, if they hold for this code and these reports.

    Raises:
        DatabaseError: they are of this code, but are no such answers.
    """
    if stored is None:
        log.info("%s: answers are computed: none are cached", tables.name)
        return None
    values = dict(stored.iter_rows())
    if values.get("fingerprint") != _encoded(fingerprint(Options(), tables.reports)):
        log.info("%s: answers are computed: the cached ones are of other code", tables.name)
        return None
    whole = ",".join(f"{_encoded(name)}:{value}" for name, value in values.items())
    try:
        answers = msgspec.json.decode(f"{{{whole}}}", type=Answers)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _damaged(tables, str(error)) from error
    if wrong := contradiction(answers, {*tables.ranks["rank"]}):
        raise _damaged(tables, wrong)
    return answers


def _damaged(tables: RunTables, why: str) -> DatabaseError:
    return DatabaseError(
        f"{tables.database or tables.name}: is damaged (its cached answers: {why})",
        hint=REBUILD_HINT,
    )


def contradiction(answers: Answers, ranks: set[int]) -> str | None:
    """The first fault of answers, in words; None without any.

    A fault is a rank or an iteration that is not compared, or a number without bounds.

    Args:
        ranks: the ranks of the run.
    """
    numbers = answers.scope.selection.numbers
    if not numbers or any(each >= after for each, after in pairwise(numbers)):
        return "invalid iterations"
    if {*answers.roles} != ranks:
        return "roles of other ranks"
    if {name: each.metric for name, each in answers.metrics.items()} != {n: n for n in METRICS}:
        return "invalid metrics"
    if answers.flag_metric not in (None, *METRICS) or answers.scope.clock not in [*Clock]:
        return "an invalid metric or clock"
    if {each for _, iterations in answers.verdict.slow_sets for each in iterations} - {*numbers}:
        return "iterations that are not compared"
    return next(_wrong(answers, "", ranks), None)


def _wrong(value: object, name: str, ranks: set[int]) -> Iterator[str]:
    """The faults of the numbers in a record; `name` is that of its field."""
    if isinstance(value, dict):
        value = (*value, *value.values())
    if isinstance(value, int | float):
        if name in OF_RANK and value not in ranks:
            yield f"rank {value}"
        if not abs(value) <= FURTHEST:
            yield f"{name} {value}"
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _wrong(each, name, ranks)
    else:
        for each in getattr(value, "__struct_fields__", ()):
            yield from _wrong(getattr(value, each), each, ranks)


def _comparison(tables: RunTables, answers: Answers, stored: dict[str, pl.DataFrame]) -> Comparison:
    fits = {rank: ClockFit(*fit) for rank, *fit in stored["clocks"].iter_rows()}
    clocks = Clocks(fits, answers.middle_ns, answers.method)
    calls = answers.calls, answers.call_iterations
    summary = MatchSummary(*calls, stored["unmatched"], clocks)
    return Comparison(
        scope=scope_of(tables, Options(), answers.scope),
        matching=Matching(summary, stored["streams"], stored["communicators"]),
        roles=Roles(answers.roles, answers.roles_source, answers.replicas, []),
        began=answers.began,
        _waits=stored["scores"].select("rank", *WAITED),
        _waits_of_all=stored["waits_of_all"],
        _outliers=Outliers(answers.flag_metric, None, answers.story, stored=True),
        _scores=stored["scores"].drop(*WAITED),
        _verdict=answers.verdict,
        _summary=Summary(
            answers.metrics,
            answers.efficiency,
            stored["by_iteration"],
            stored["what_if"] if answers.replayed else None,
        ),
    )


def _encoded(value: object) -> str:
    """A value as JSON."""
    return msgspec.json.encode(value, enc_hook=_plain).decode()


def _plain(value: object) -> object:
    """A number of numpy as one of Python."""
    item = getattr(value, "item", None)
    if item is None:
        raise NotImplementedError(f"no JSON of {type(value).__name__}")
    return item()
