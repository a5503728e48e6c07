"""Files that rankscope writes for other programs, into the folders of these."""

from collections.abc import Mapping
from pathlib import Path

from rankscope.util.atomic_io import check_own, unwritable, write_whole

NAME = "rankscope"
"""The name of the folder that is written, and the mark near the beginning of its files."""

PACKAGE = Path(__file__).parent.parent

PYTHON = "PYTHON = sys.executable\n"
"""The line of the recipe that names the Python of rankscope."""


def install(folder: Path, texts: Mapping[str, str]) -> tuple[Path, ...]:
    """Write files to the folder `rankscope` in a folder; both are created.

    Returns:
        The files.

    Raises:
        UsageError: a file cannot be written, or was not written by rankscope.
    """
    targets = {folder / NAME / name: text for name, text in texts.items()}
    try:
        (folder / NAME).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(folder / NAME, str(error.strerror)) from error
    for target in targets:
        check_own(target, NAME)
    for target, text in targets.items():
        write_whole(target, text.encode())
    return (*targets,)


def recipe_texts(python: str) -> dict[str, str]:
    """The files of the recipe of Nsight Systems, by name.

    Args:
        python: the Python of rankscope; that of nsys may be another one.
    """
    texts = {name: (PACKAGE / name).read_text("utf-8") for name in ("metadata.json", "recipe.py")}
    before, separator, after = texts["recipe.py"].partition(PYTHON)
    assert separator
    return {**texts, "recipe.py": f"{before}PYTHON = {python!r}\n{after}"}
