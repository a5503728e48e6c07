"""A recipe of Nsight Systems: `nsys recipe rankscope --input REPORTS`.

`rankscope recipe --install DIR` copies this module and `metadata.json` to DIR/rankscope. The
framework imports it as `rankscope.recipe`, which is this file as well if the Python of nsys has
rankscope itself. That Python may be as old as 3.6, so rankscope runs as a program of its own.
"""

import os
import subprocess
import sys
from argparse import ArgumentError
from contextlib import suppress
from datetime import datetime

from nsys_recipe import nsys_constants
from nsys_recipe.lib import nsys_path, recipe
from nsys_recipe.lib.args import Option

PYTHON = sys.executable
"""The Python of rankscope, which the installed copy names."""


class SlowRanks(recipe.Recipe):  # type: ignore[misc]  # of the framework, which has no types
    """Ingests reports, prints the verdict, and leaves the database and the page."""

    def run(self, context: object) -> None:
        """Run rankscope on the reports that `--input` names."""
        super().run(context)
        iteration = self.get_parsed_arg("iteration")
        reports = [os.path.abspath(each) for each in self._parsed_args.input]
        options = [] if iteration is None else ["--iteration", iteration]
        db = os.path.abspath(self.add_output_file("rankscope.duckdb"))
        page = os.path.abspath(self.add_output_file("report.html"))
        self._rankscope("ingest", "--db", db, *options, *reports)
        self._rankscope("imbalance", "--db", db)
        self._rankscope("report", "--db", db, "--output", page)
        self._analysis_dict.update(
            {
                "EndTime": str(datetime.now()),
                "InputFiles": self._parsed_args.input,
                "Outputs": self._output_files,
            }
        )
        self.create_analysis_file()

    @classmethod
    def get_argument_parser(cls) -> object:
        """The options: every recipe declares those that it wants."""
        parser = super().get_argument_parser()
        parser.add_recipe_argument(Option.INPUT, required=True)
        for name in ("OUTPUT", "FORCE_OVERWRITE"):
            with suppress(ArgumentError, AttributeError):  # newer ones may have it for all recipes
                parser.add_recipe_argument(getattr(Option, name))
        parser.add_recipe_argument(
            "--iteration", metavar="REGEX", help="Names of iterations, as of rankscope ingest"
        )
        return parser

    def _rankscope(self, *words: str) -> None:
        """Run a command, which prints its errors; after one the framework removes the output."""
        sys.stdout.flush()
        code = subprocess.call([PYTHON, "-P", "-m", "rankscope", *words], env=environment())
        if code:
            raise SystemExit(code)


def environment() -> "dict[str, str]":
    """The environment without the folders of nsys, whose libraries are not those of rankscope.

    nsys itself is handed over: it exports reports, and it is seldom on the PATH of its recipes.
    """
    folder = os.path.realpath(str(nsys_path.get_install_dir()))
    kept = dict(os.environ)
    for name in ("PYTHONPATH", "LD_LIBRARY_PATH"):
        paths = [
            path
            for path in kept.pop(name, "").split(os.pathsep)
            if path and os.path.commonpath([folder, os.path.realpath(path)]) != folder
        ]
        if paths:
            kept[name] = os.pathsep.join(paths)
    nsys = nsys_path.find_installed_file(nsys_constants.NSYS_EXE_NAME)
    kept.setdefault("RANKSCOPE_NSYS", nsys)
    return kept
