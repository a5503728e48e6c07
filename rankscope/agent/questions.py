"""What an assistant can ask: the arguments of each tool. Its input schema is made of them."""

from typing import Annotated

from msgspec import Meta, Struct

from rankscope.capture import Scheduler
from rankscope.model.kinds import NAMED_PHASES, By
from rankscope.util.meaning import says

MOST = 6
"""Elements of a list that an answer shows unless more are asked for."""

Db = Annotated[
    str, says("a database that `ingest` made, below the folders that this server was started with")
]
Reports = Annotated[
    tuple[str, ...],
    says("reports, folders (searched recursively) or patterns, below the folders of this server"),
]
Iteration = Annotated[
    str | None,
    says(
        r"regular expression of the names of iteration ranges, such as `my_step_(\d+)`; `auto`; "
        "or `whole`. Default: known names"
    ),
]
Phases = Annotated[
    dict[str, str], says(f"phase ({', '.join(NAMED_PHASES)}) → pattern of its ranges")
]
RunNumber = Annotated[
    int | None, says("the number of the run, where the error lists several in these reports")
]
IterRange = Annotated[
    str | None,
    says("iterations as a Python slice of their numbers: `10:50`, or `-20:` for the last 20"),
]


class Question(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What all tools take."""

    most: Annotated[
        int,
        Meta(
            ge=2,  # pairs of numbers stay whole
            le=100_000,
            description="most elements of each list in the answer; `left_out` counts the others",
        ),
    ] = MOST


class Check(Question, kw_only=True, frozen=True):
    """Are these reports enough to tell who is slow, and how are better ones recorded?"""

    paths: Reports
    iteration: Iteration = None
    phases: Phases = {}
    run: RunNumber = None


class Ingest(Question, kw_only=True, frozen=True):
    """Read reports into a database, which the other tools ask."""

    paths: Reports
    db: Annotated[str, says("the database to write (`.duckdb`), below the folders")] = (
        "rankscope.duckdb"
    )
    iteration: Iteration = None
    phases: Phases = {}
    run: RunNumber = None
    skip_bad: Annotated[
        bool, says("leave out reports that cannot be read, and list them, instead of failing")
    ] = False


class Imbalance(Question, kw_only=True, frozen=True):
    """Who is slow, in which iterations and phase, and what does it cost?"""

    db: Db = "rankscope.duckdb"
    iter_range: IterRange = None
    metrics: Annotated[
        tuple[str, ...], says("metrics of `metrics` and `ranks`; default: the main ones")
    ] = ()
    by: Annotated[By | None, says("also fill `rows`, a table with such rows")] = None


class Explain(Question, kw_only=True, frozen=True):
    """What does a word of an answer mean?"""

    term: Annotated[
        str, says("a metric, class, cause, code of a warning, key of a document, or other word")
    ]


class PickReports(Question, kw_only=True, frozen=True):
    """Which few reports show the difference side by side, and where in them?"""

    db: Db = "rankscope.duckdb"
    iter_range: IterRange = None
    metric: Annotated[str | None, says("the metric to pick by")] = None


class Timeline(Question, kw_only=True, frozen=True):
    """What did some ranks do in some iterations, on one clock?"""

    db: Db = "rankscope.duckdb"
    ranks: Annotated[
        tuple[int, ...], Meta(max_length=16, description="ranks; default: the picked ones")
    ] = ()
    iterations: Annotated[
        tuple[int, ...], Meta(max_length=16, description="iterations; default: the one to look at")
    ] = ()


class NextCapture(Question, kw_only=True, frozen=True):
    """What is the smallest capture that settles what this run left open?"""

    db: Db = "rankscope.duckdb"
    scheduler: Annotated[Scheduler, says("what starts the ranks")] = Scheduler.SLURM
