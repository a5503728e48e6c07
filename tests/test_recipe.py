"""The recipe of Nsight Systems, run by the recipe framework of a real nsys.

`TESTS_RECIPES=FOLDER...` (with colons) says where installations of nsys are: a folder holds
`target-linux-x64`. `.ci/recipes FOLDER` unpacks what is needed of one.
"""

import ast
import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from rankscope_cli.main import COMMANDS

import rankscope
from tests.reference import help_of
from tests.support import SAMPLE, Cli, Result, mostly_nightly, python

PACKAGE = Path(rankscope.__file__).parent
INSTALLED = [Path(each) for each in os.environ.get("TESTS_RECIPES", "").split(":") if each]
TARGET = "target-linux-x64"
LIBRARY = "libsqlite3.so.0"

framework_is_here = pytest.mark.skipif(not INSTALLED, reason="TESTS_RECIPES names no framework")
needs_nsys = pytest.mark.skipif(shutil.which("nsys") is None, reason="nsys is not installed")


@pytest.fixture(params=INSTALLED or [Path()], ids=lambda path: path.name)
def nsys(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """An installation that can run recipes; of the framework, Debian's lacks a folder or two.

    Its nsys notes its environment and is the one on the PATH. Its packages spoil those of
    rankscope: what a library of nsys does in a process that is not its own.
    """
    home = tmp_path / "nsys home"
    shutil.copytree(request.param / TARGET / "python", home / TARGET / "python")
    for name in ("reports", "rules"):
        shutil.copytree(request.param / TARGET / name, home / TARGET / name)
    packages = home / TARGET / "python" / "packages"
    (packages / "nsys_recipe" / "third_party").mkdir(exist_ok=True)
    (packages / "polars.py").write_text("raise SystemExit('polars of nsys')\n")
    library = request.param / TARGET / LIBRARY
    (home / TARGET / LIBRARY).symlink_to(
        library if library.exists() else f"/usr/lib/x86_64-linux-gnu/{LIBRARY}"
    )
    program = home / TARGET / "nsys"
    program.write_text(f'#!/bin/sh\nenv >> "{home}/said"\nexec {shutil.which("nsys")} "$@"\n')
    program.chmod(0o755)
    return home


@pytest.fixture
def recipes(cli: Cli, tmp_path: Path) -> Path:
    """The recipe, and the same as `copied`: nsys's Python has no package of that name."""
    assert cli("recipe", "--install", "recipes", "--quiet").code == 0
    folder = tmp_path / "recipes"
    shutil.copytree(folder / "rankscope", folder / "copied")
    return folder


def cook(nsys: Path, recipes: Path, name: str, *words: object) -> Result:
    """Run a recipe as `nsys recipe` does: its packages come first on PYTHONPATH."""
    ours = [str(PACKAGE.parent), str(PACKAGE.parent / "cli")]
    kept = {each: os.environ[each] for each in ("PATH", "HOME") if each in os.environ}
    own = {
        **kept,
        "PYTHONPATH": os.pathsep.join([str(nsys / TARGET / "python" / "packages"), *ours]),
        "LD_LIBRARY_PATH": os.pathsep.join([str(nsys / TARGET), "/lib/of/the/user"]),
        "NSYS_RECIPE_PATH": str(recipes),
        "XDG_CACHE_HOME": str(recipes.parent / "cache"),
    }
    return python("-m", "nsys_recipe", name, *words, cwd=recipes.parent, env=own)


@pytest.mark.slow
@framework_is_here
@needs_nsys
@pytest.mark.parametrize("name", mostly_nightly(["rankscope", "copied"]))
def test_the_recipe_names_the_slow_rank(nsys: Path, recipes: Path, name: str) -> None:
    done = cook(nsys, recipes, name, "--input", SAMPLE, "--output", "slow")
    assert done.code == 0, done.err
    assert "Rank 2 (node1)" in done.out
    out = recipes.parent / "slow"
    assert {each.name for each in out.iterdir()} == {
        *("rankscope.duckdb", "report.html", "slow.nsys-analysis")
    }
    assert rankscope.open_run(out / "rankscope.duckdb").imbalance().verdict.ranks == (2,)
    assert "plotly.js" in (out / "report.html").read_text("utf-8")
    analysis = json.loads((out / "slow.nsys-analysis").read_text())
    assert analysis["RecipeName"] == name
    assert {Path(each).name for each in analysis["InputFiles"]} == {
        f"report_rank_{rank}.nsys-rep" for rank in range(4)
    }
    said = (nsys / "said").read_text().splitlines()  # it was handed over: its PATH is not ours
    assert f"LD_LIBRARY_PATH={nsys}/{TARGET}" not in "\n".join(said)
    assert "LD_LIBRARY_PATH=/lib/of/the/user" in said


NEWER = """
def _with_output(cls, older=Recipe.get_argument_parser.__func__):
    parser = older(cls)
    parser.add_recipe_argument(args.Option.OUTPUT)
    parser.add_recipe_argument(args.Option.FORCE_OVERWRITE)
    return parser

Recipe.get_argument_parser = classmethod(_with_output)
"""
"""Recipes of newer releases do not declare these two, so their framework must do it."""


@pytest.mark.slow
@framework_is_here
@needs_nsys
def test_a_framework_may_declare_the_output_itself(nsys: Path, recipes: Path) -> None:
    module = nsys / TARGET / "python" / "packages" / "nsys_recipe" / "lib" / "recipe.py"
    before = cook(nsys, recipes, "rankscope", "--help")
    module.write_text(module.read_text("utf-8") + NEWER)
    for done in (before, cook(nsys, recipes, "rankscope", "--help")):
        assert done.code == 0, done.err
        options = {"--input", "--output", "--force-overwrite", "--iteration"}
        assert options <= {*re.findall(r"--[a-z-]+", done.out)}


@pytest.mark.slow
@framework_is_here
@needs_nsys
def test_an_error_is_that_of_the_command_and_leaves_nothing(nsys: Path, recipes: Path) -> None:
    (recipes.parent / "bad.nsys-rep").write_bytes(b"no report")
    done = cook(nsys, recipes, "rankscope", "--input", "bad.nsys-rep", "--output", "slow")
    assert done.code == 3
    assert "rankscope: error: " in done.err
    assert "bad.nsys-rep" in done.err
    assert not (recipes.parent / "slow").exists()
    missing = cook(nsys, recipes, "rankscope")
    assert missing.code == 2
    assert "--input" in missing.err


def test_the_recipe_is_written_and_written_again(cli: Cli) -> None:
    for _ in range(2):
        done = cli("recipe", "--install", "my recipes")
        assert done.code == 0
        assert "nsys recipe rankscope --input REPORTS" in done.err
    folder = Path("my recipes/rankscope")
    assert {each.name for each in folder.iterdir()} == {"metadata.json", "recipe.py"}
    text = (folder / "recipe.py").read_text("utf-8")
    assert f"PYTHON = {sys.executable!r}" in text
    assert "sys.executable" not in text
    ast.parse(text, feature_version=(3, 6))  # the oldest Python of the framework
    metadata = json.loads((folder / "metadata.json").read_text("utf-8"))
    assert (folder / f"{metadata['module_name']}.py").is_file()


@pytest.mark.parametrize("command", ["recipe", "skill"])
def test_files_of_others_are_not_replaced(cli: Cli, command: str) -> None:
    name = {"recipe": "recipe.py", "skill": "SKILL.md"}[command]
    mine = Path("rankscope") / name
    mine.parent.mkdir()
    mine.write_text("mine")
    cli(command, "--install", ".").refused(2, name, "was not written by")
    assert [*mine.parent.iterdir()] == [mine]
    assert mine.read_text() == "mine"
    Path("file").write_text("")
    cli(command, "--install", "file").refused(2, "cannot be written")
    if command == "recipe":
        cli("recipe").refused(2, "--install")


def test_the_skill_is_one_that_assistants_read(cli: Cli) -> None:
    """A folder with the name of the skill, and a head with name and description."""
    assert cli("skill", "--install", "skills").code == 0
    text = Path("skills/rankscope/SKILL.md").read_text("utf-8")
    assert text == (PACKAGE / "docs" / "SKILL.md").read_text("utf-8")
    assert cli("skill").out == text
    _, head, body = text.split("---\n", 2)
    keys = dict(line.split(": ", 1) for line in head.strip().splitlines())
    assert keys["name"] == "rankscope"
    assert 0 < len(keys["description"]) <= 1024
    assert ": " not in keys["description"], "else it is no plain text of YAML"
    assert len(body.split()) < 700


def test_the_commands_of_the_skill_are_there() -> None:
    text = (PACKAGE / "docs" / "SKILL.md").read_text("utf-8")
    typed = re.findall(r"\brankscope ([a-z-]+)([^`\n|]*)", text.split("---\n", 2)[2])
    assert {"check", "ingest", "imbalance"} <= {command for command, _ in typed}
    for command, words in typed:
        assert command in COMMANDS
        options = {*re.findall(r"(?<!\S)--?[a-z][a-z-]*", words)}
        assert options <= {*re.findall(r"--?[a-z][a-z-]*", help_of(command))}, command
