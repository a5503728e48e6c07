"""The pages of `--help`: plain text, with groups of options, and with examples unchanged.

They do not use rich, which takes longer to import than the rest of the command line.
"""

import inspect
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from rankscope.util.rank_list import LARGEST

OUTPUT = "Output"
"""The group of options for the format of the result and for messages."""

CHOICE = "Selection and comparison"
"""The group of options that select ranks, iterations and metrics, and how to compare them."""

NAMES = "Names in the reports"
"""The group of options for the names of ranges and files."""

LONGEST_NAME = 26
"""The meaning of a longer option starts on the next line."""

FIRST = ("check", "ingest", "imbalance", "pick-reports", "plot", "report")
"""The commands from reports to an answer, in the order of their use."""

TO_THE_ANSWER, MORE = "From reports to the answer", "More"
"""The groups of those commands, and of all others."""

EXIT_CODES = (
    "Exit codes: 0 done; 2 wrong usage; 3 reports cannot be used; 4 database missing, locked or "
    "damaged; 5 an outside tool failed; 10 --fail-above exceeded; 130 interrupted. "
    "See rankscope explain 'exit 3'."
)

Formatter = Any
"""The writer of a page of help; its class is private to typer."""


class Command(TyperCommand):
    """A command whose help shows its options in groups, and which refuses `nan` and `inf`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse a number that is `nan`, infinite, or larger than any number of a run."""
        unparsed = super().parse_args(ctx, args)
        for param in self.params:
            value = ctx.params.get(param.name)
            if isinstance(value, int | float) and not abs(value) <= LARGEST:
                shown = str(value)[:LONGEST_NAME]
                raise typer.BadParameter(f"{shown} is out of range", ctx, param_hint=param.opts[0])
        return unparsed

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The arguments by their metavars."""
        metavars = [param.metavar for param in self.params if param.param_type_name == "argument"]
        return ["[OPTIONS]", *(name for name in metavars if name)]

    def format_help_text(self, ctx: Any, formatter: Formatter) -> None:
        """Write the help text; paragraphs are folded, indented examples stay unchanged."""
        formatter.write("\n")
        paragraphs = inspect.cleandoc(self.help or "").split("\n\n")
        for before, paragraph in zip(["", *paragraphs], paragraphs, strict=False):
            typed = paragraph.startswith(" ")
            if before and not (typed and before.startswith((" ", "Examples"))):
                formatter.write("\n")
            formatter.write(f"{paragraph.rstrip()}\n") if typed else formatter.write_text(paragraph)

    def format_options(self, ctx: Any, formatter: Formatter) -> None:
        """Write the arguments, then the command's own options, then the groups."""
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for group in (CHOICE, NAMES, OUTPUT):
            groups[group] = []
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is None:
                continue
            if param.param_type_name == "argument":
                groups["Arguments"].append((param.metavar or record[0], record[1]))
            else:
                default = OUTPUT if param.name == "help" else "Options"
                groups[getattr(param, "rich_help_panel", None) or default].append(record)
        for group, rows in groups.items():
            if rows:
                with formatter.section(group):
                    formatter.write_dl(rows, col_max=LONGEST_NAME)


class Group(TyperGroup):
    """The program; its help shows the commands of `FIRST` before all others."""

    def format_commands(self, ctx: Any, formatter: Formatter) -> None:
        """Write the first paragraph of every command's help, by groups, and the exit codes."""
        rows = {
            name: inspect.cleandoc(command.help or "").split("\n\n")[0].replace("\n", " ")
            for name, command in self.commands.items()
        }
        width = max(map(len, rows))
        others = [name for name in rows if name not in FIRST]
        for group, names in ((TO_THE_ANSWER, FIRST), (MORE, others)):
            members = [(name.ljust(width), rows[name]) for name in names if name in rows]
            if members:
                with formatter.section(group):
                    formatter.write_dl(members)
        formatter.write("\n")
        formatter.write_text(EXIT_CODES)
