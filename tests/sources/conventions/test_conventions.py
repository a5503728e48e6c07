"""Names → meanings; the conventions are data."""

import sys
from collections.abc import Callable, Iterator

import polars as pl
import pytest

from rankscope.errors import UsageError
from rankscope.model.kinds import PHASES
from rankscope.model.options import ShapingOptions
from rankscope.sources.conventions import vocabulary
from rankscope.sources.conventions.data import SQUASHED, conventions
from rankscope.sources.conventions.vocabulary import ANY, MEANINGS, BadConvention
from tests.frames import ranges

module = sys.modules[vocabulary.__module__]
"""`rankscope.sources.conventions.vocabulary`, which the function of that name hides."""

STRANGE = ("", "request 17 of user 9", "my logging", "sample #", "ünïcode")
"""Names that mean nothing."""


def meaning(name: str, domain: str = "", **options: object) -> dict[str, object]:
    words = vocabulary(ShapingOptions(**options))
    frame = words.meanings(ranges((0, 1, name), domain=domain))
    assert frame.schema == MEANINGS
    return frame.row(0, named=True)


@pytest.fixture
def add_row(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., int]]:
    """Adds a row to the conventions, for one test; gives its number."""

    def add(**row: object) -> int:
        rows = [*conventions()["row"], {"framework": "toyframe", **row}]
        monkeypatch.setattr(module, "conventions", lambda: {"row": rows})
        module._shipped.cache_clear()
        return len(rows)

    yield add
    module._shipped.cache_clear()


def test_a_row_with_an_unknown_meaning_is_named(add_row: Callable[..., int]) -> None:
    number = add_row(means="forwrd", words=["toy forward"])
    with pytest.raises(BadConvention) as refused:
        vocabulary(ShapingOptions())
    said = str(refused.value)
    assert said.startswith(
        f"conventions.toml, row {number} (toyframe): 'forwrd' is not a meaning; one of iteration, "
    )
    assert "forward" in said


@pytest.mark.parametrize("domain", [{}, {"domain": "toys"}])
def test_a_row_with_a_bad_pattern_is_named(
    add_row: Callable[..., int], domain: dict[str, str]
) -> None:
    number = add_row(means="forward", patterns=["^toy$", "toy(?=s)"], **domain)
    with pytest.raises(BadConvention) as refused:
        meaning("toys")
    assert str(refused.value).startswith(
        f"conventions.toml, row {number} (toyframe): 'toy(?=s)' is not a regular expression"
    )


def test_domains_matter() -> None:
    assert meaning("MPI_Allreduce", "MPI")["operation"] == "all_reduce"
    assert meaning("MPI_Allreduce")["means"] is None


def test_the_users_patterns_come_first() -> None:
    assert meaning("forward", phases=(("backward", "forward"),))["means"] == "backward"
    found = meaning("my-42-step", iteration=r"my-(\d+)")
    assert (found["means"], found["number"]) == ("iteration", 42)
    assert meaning("step 1", iteration="other")["means"] is None
    assert meaning("forward", iteration="other")["means"] == "forward"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"iteration": "("}, "--iteration"),
        ({"iteration": r"(?<=x)y"}, "--iteration"),
        ({"phases": (("forward", "["),)}, "--phase"),
        ({"phases": (("nonsense", "x"),)}, "nonsense"),
    ],
)
def test_patterns_that_are_none_are_refused(options: dict[str, object], named: str) -> None:
    with pytest.raises(UsageError, match=named) as refused:
        vocabulary(ShapingOptions(**options))
    assert refused.value.hint


def test_every_row_of_the_data_is_whole() -> None:
    means = {*PHASES, "iteration", "collective", "operator", "backward operator", "background"}
    for row in conventions()["row"]:
        assert row["means"] in means
        assert row.keys() & {"patterns", "words", "squashed"}, row
        assert row["framework"], row
        assert row["seen"], row
        assert (row["means"] == "collective") <= ("operation" in row), row


def test_patterns_tried_at_once_tell_what_each_tells() -> None:
    own = ShapingOptions(iteration="(?x) ^lap .* # a comment", phases=(("load", "read"),))
    words, rows = vocabulary(own), conventions()["row"]
    spelled = (name.replace("N", "7") for row in rows for name in row.get("words", ()))
    names = {*spelled, *STRANGE, "lap 3", "I read", "aten::mm", "ncclAllReduce", "MPI_Wait", "Step"}
    domains = {"", "my own", *(row["domain"] for row in rows if "domain" in row)}
    asked = pl.DataFrame({"name": sorted(names)}).join(
        pl.DataFrame({"domain": sorted(domains)}), how="cross"
    )
    squashed = asked.with_columns(SQUASHED)
    fits = [squashed.select(row.fits()).to_series() for row in words.rows]
    first = [next((i for i, fit in enumerate(fits) if fit[at]), None) for at in range(asked.height)]
    output = words.look_up(asked)
    row = asked.join(output, on=["name", "domain"], how="left", maintain_order="left")["row"]
    assert row.to_list() == first
    for name in ("lap 3", "MPI_Wait", "Step"):  # other rows are tried for other names
        alone = words.look_up(asked.filter(name=name))
        assert alone.sort("domain").equals(output.filter(name=name).sort("domain"))
    by_name = {
        name for name, fitting in zip(asked["name"], first, strict=True)
        if fitting is not None and ANY not in words.rows[fitting].patterns
    }  # fmt: skip
    strange = asked["name"].filter(~words.tell(asked["name"]))
    assert by_name.isdisjoint(strange)
    assert {*STRANGE} <= {*strange}
