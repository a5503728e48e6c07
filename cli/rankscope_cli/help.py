"""The pages of `--help`: plain text with options in groups and examples as they are typed.

They need no rich, which takes longer to import than the rest of the command line.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from typer._click import Context, HelpFormatter

OUTPUT = "Output"
"""The group of options that say how the result is told."""

CHOICE = "What to look at"
"""The group of options that choose ranks, iterations and metrics, and how to compare them."""

NAMES = "Names in the reports"
"""The group of options that say what ranges and files are called."""

LONGEST_NAME = 26
"""Longer options have their meaning on the next line."""


class Command(TyperCommand):
    """A command whose help shows its options by group."""

    def collect_usage_pieces(self, ctx: Context) -> list[str]:
        """Arguments as their meaning names them."""
        given = [param.metavar for param in self.params if param.param_type_name == "argument"]
        return ["[OPTIONS]", *(name for name in given if name)]

    def format_help_text(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Paragraphs are folded; what is indented (examples) stays."""
        formatter.write("\n")
        paragraphs = inspect.cleandoc(self.help or "").split("\n\n")
        for before, paragraph in zip(["", *paragraphs], paragraphs, strict=False):
            typed = paragraph.startswith(" ")
            if before and not (typed and before.startswith((" ", "Examples"))):
                formatter.write("\n")
            formatter.write(f"{paragraph.rstrip()}\n") if typed else formatter.write_text(paragraph)

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Arguments, then the command's own options, then the groups."""
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for group in (CHOICE, NAMES, OUTPUT):
            groups[group] = []
        for param in self.get_params(ctx):
            told = param.get_help_record(ctx)
            if told is None:
                continue
            if param.param_type_name == "argument":
                groups["Arguments"].append((param.metavar or told[0], told[1]))
            else:
                plain = OUTPUT if param.name == "help" else "Options"
                groups[getattr(param, "rich_help_panel", None) or plain].append(told)
        for group, rows in groups.items():
            if rows:
                with formatter.section(group):
                    formatter.write_dl(rows, col_max=LONGEST_NAME)


class Group(TyperGroup):
    """The program, whose help shows every command by its first line."""

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        """A line or two a command, whole."""
        rows = [
            (name, inspect.cleandoc(command.help or "").split("\n\n")[0].replace("\n", " "))
            for name, command in self.commands.items()
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
