"""`rankscope recipe`: rankscope as a recipe of Nsight Systems."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from rankscope_cli import console
from rankscope_cli.options import Quiet


def recipe(
    install: Annotated[
        Path,
        typer.Option(
            "--install",
            metavar="DIR",
            help="Folder of recipes: writes DIR/rankscope/metadata.json and its module.",
        ),
    ],
    quiet: Quiet = False,
) -> None:
    """Write a recipe, so that `nsys recipe rankscope --input REPORTS` says who is slow.

    It leaves the database, the page and an .nsys-analysis. nsys finds it in the folders of
    NSYS_RECIPE_PATH and in the working folder.

    Examples:

      rankscope recipe --install ~/nsys-recipes
    """
    import sys

    from rankscope.util.installing import install as installed
    from rankscope.util.installing import recipe_texts

    for written in installed(install, recipe_texts(sys.executable)):
        console.say(f"rankscope: wrote {written}", quiet)
    folder = shlex.quote(str(install.resolve()))
    console.say(f"NSYS_RECIPE_PATH={folder} nsys recipe rankscope --input REPORTS", quiet)
