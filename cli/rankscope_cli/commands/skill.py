"""`rankscope skill`: how an assistant uses rankscope, as a file that it reads."""

from pathlib import Path
from typing import Annotated

import typer

from rankscope_cli import console
from rankscope_cli.options import Quiet


def skill(
    install: Annotated[
        Path | None,
        typer.Option(
            "--install",
            metavar="DIR",
            help="Folder of skills: writes DIR/rankscope/SKILL.md. Default: print it.",
        ),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Print or install SKILL.md, which tells an assistant when and how to use rankscope.

    Examples:

      rankscope skill

      rankscope skill --install ~/.claude/skills
    """
    from rankscope.output.explain import FOLDER
    from rankscope.util.installing import install as installed

    text = (FOLDER / "SKILL.md").read_text("utf-8")
    if install is None:
        console.write(text.rstrip("\n"))
        return
    [written] = installed(install, {"SKILL.md": text})
    console.say(f"rankscope: wrote {written}", quiet)
