"""The public names: all there, all described, loaded only when used."""

import inspect
import pickle
from collections.abc import Callable
from enum import Enum
from importlib import import_module
from typing import get_type_hints

import pytest
from rankscope_cli.bundles import expanded

import rankscope
from rankscope.errors import RankscopeError
from rankscope.model.options import Options
from tests.support import Stored, python


@pytest.mark.parametrize("name", rankscope.__all__)
def test_public_names_exist_and_say_what_they_are(name: str) -> None:
    thing = getattr(rankscope, name)
    assert inspect.getdoc(thing)
    assert not (inspect.getdoc(thing) or "").startswith(f"{name}("), "a made-up signature"
    if inspect.isclass(thing):
        public = [value for key, value in vars(thing).items() if not key.startswith("_")]
        methods = [value for value in public if inspect.isfunction(value)]
        assert all(inspect.getdoc(method) for method in methods)


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = rankscope.nonsense
    assert set(rankscope.__all__) <= set(dir(rankscope))


def test_the_version_is_that_of_the_package() -> None:
    from importlib.metadata import version

    assert version("rankscope") == rankscope.__version__


def every_error() -> list[type[RankscopeError]]:
    found = [RankscopeError]
    for kind in found:
        found += kind.__subclasses__()
    return found


@pytest.mark.parametrize("kind", every_error())
def test_errors_keep_their_hint_across_processes(kind: type[RankscopeError]) -> None:
    error = pickle.loads(pickle.dumps(kind("file: broken", hint="mend it")))
    assert type(error) is kind
    assert kind.__module__ == "rankscope.errors"
    assert (str(error), error.message, error.hint) == ("file: broken", "file: broken", "mend it")


def test_an_error_needs_a_hint() -> None:
    with pytest.raises(TypeError):
        RankscopeError("file: broken")  # type: ignore[call-arg]


def declared_defaults(function: Callable[..., object]) -> dict[str, object]:
    """Parameter → default, with the enums of the command line as text."""
    return {
        name: each.default.value if isinstance(each.default, Enum) else each.default
        for name, each in inspect.signature(function).parameters.items()
        if each.default is not inspect.Parameter.empty
    }


def defaults_of_command(name: str) -> dict[str, object]:
    """Those of the function of a command, as typer takes it."""
    return declared_defaults(
        expanded(getattr(import_module(f"rankscope_cli.commands.{name}"), name))
    )


COMPARING = ("imbalance", "pick_reports", "plot", "export", "report", "diff")
"""Commands that compare ranks."""


@pytest.mark.parametrize("name", COMPARING)
def test_defaults_are_those_of_the_command_line(name: str) -> None:
    of_command, of_library = defaults_of_command(name), declared_defaults(Options)
    shared = of_command.keys() & of_library.keys()
    assert shared >= {"iter_range", "clock", "include_warmup"}
    assert {each: of_command[each] for each in shared} == {
        each: of_library[each] for each in shared
    }


def test_the_keywords_of_answers_are_the_options_of_a_comparison() -> None:
    assert {*get_type_hints(rankscope.AnalysisOptions)} == {*Options.__struct_fields__}


def test_every_option_of_a_comparison_is_one_of_the_command_line() -> None:
    assert declared_defaults(Options).keys() <= defaults_of_command("imbalance").keys()


def test_defaults_of_ingest_are_those_of_the_command_line() -> None:
    of_command, of_library = defaults_of_command("ingest"), declared_defaults(rankscope.ingest)
    callbacks = {"started", "progress"}
    terminal = {"output", "quiet", "verbose", "version"}
    own = {"all_runs"}  # several databases, but a call of the library makes one run
    compared = of_library.keys() - callbacks
    renamed = {"phase": "phases", "collective": "collectives"}
    assert compared == {renamed.get(each, each) for each in of_command.keys() - terminal - own}
    assert own <= of_command.keys()
    for option in of_command.keys() - terminal - own:
        default, expected = of_command[option], of_library[renamed.get(option, option)]
        assert default == expected or str(default) == str(expected), option


def test_the_theme_of_pictures_is_that_of_the_command_line() -> None:
    assert defaults_of_command("plot")["theme"] == declared_defaults(rankscope.Run.plot)["theme"]


@pytest.mark.parametrize(
    "begun",
    [
        *(
            f"sys.argv = ['rankscope', {words}]\n"
            "from rankscope_cli.main import main\n"
            "try: main()\n"
            "except SystemExit: pass\n"
            for words in ("'imbalance', '--help'", "'explain', 'work'")
        ),
        "import rankscope.ingestion.job\n",
    ],
)
def test_nothing_heavy_loads_at_first(begun: str) -> None:
    """Help, `explain` and processes that read start before anything that computes or paints."""
    heavy = "('polars', 'duckdb', 'numpy', 'pyarrow', 'loky', 'matplotlib', 'rich')"
    code = f"import sys\n{begun}print([n for n in {heavy} if n in sys.modules])"
    done = python("-c", code, check=True)
    assert done.out.splitlines()[-1] == "[]"


def test_a_stored_answer_loads_nothing_that_computes(sample: Stored) -> None:
    code = (
        f"import sys\nsys.argv = ['rankscope', 'imbalance', '--db', {str(sample.db)!r}]\n"
        "from rankscope_cli.main import main\n"
        "try: main()\n"
        "except SystemExit as stopped: assert not stopped.code\n"
        "names = ('numpy', 'matplotlib', 'rankscope.match.calls', 'rankscope.judge.story')\n"
        "print([each for each in names if each in sys.modules])"
    )
    assert python("-c", code, check=True).out.splitlines()[-1] == "[]"


def test_numpy_loads_before_polars_where_reports_are_read() -> None:
    """Else polars reaches it through a proxy, which takes a tenth of a small report's time."""
    code = "import sys, rankscope.measure.report\nnames = [*sys.modules]\n"
    ordered = "print(names.index('numpy') < names.index('polars'))"
    assert python("-c", code + ordered, check=True).out == "True\n"
