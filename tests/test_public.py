"""The public names: all there, all told about, loaded only when used."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys

import pytest

import rankscope
from rankscope import errors
from rankscope.errors import RankscopeError
from rankscope.model.options import Options


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


def test_the_tree_of_errors_is_drawn_whole() -> None:
    drawn = [
        line.lstrip(" │├└─").split()[0]
        for line in (errors.__doc__ or "").splitlines()
        if "── " in line or line.strip() == "RankscopeError"
    ]
    assert sorted(drawn) == sorted(kind.__name__ for kind in every_error())
    assert all(kind.__module__ == "rankscope.errors" for kind in every_error())


@pytest.mark.parametrize("kind", every_error())
def test_errors_keep_their_hint_across_processes(kind: type[RankscopeError]) -> None:
    error = pickle.loads(pickle.dumps(kind("file: broken", hint="mend it")))
    assert type(error) is kind
    assert (str(error), error.message, error.hint) == ("file: broken", "file: broken", "mend it")


def test_an_error_needs_a_hint() -> None:
    with pytest.raises(TypeError):
        RankscopeError("file: broken")  # type: ignore[call-arg]


def test_defaults_are_those_of_the_command_line() -> None:
    assert Options() == Options(
        iter_range=None, clock="auto", statistic="mean", include_warmup=False
    )


@pytest.mark.parametrize(
    "begun",
    [
        "sys.argv = ['rankscope', '--help']\n"
        "from rankscope_cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n",
        "import rankscope.ingestion.job\n",
    ],
)
def test_nothing_heavy_loads_at_first(begun: str) -> None:
    """`--help` answers, and the processes that read start, before anything that computes loads."""
    heavy = "('polars', 'duckdb', 'numpy', 'pyarrow', 'loky', 'matplotlib')"
    code = f"import sys\n{begun}print([n for n in {heavy} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_library_never_prints() -> None:
    import ast
    from pathlib import Path

    for path in Path(rankscope.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = isinstance(node, ast.Call) and getattr(node.func, "id", "")
            assert called not in ("print", "input", "exit"), path
