"""Files that rankscope writes for other programs, into folders of theirs."""

from collections.abc import Mapping
from pathlib import Path

from rankscope.util.atomic_io import check_own, unwritable, write_whole

NAME = "rankscope"
"""The folder that is written, and what its files say near their beginning."""

PACKAGE = Path(__file__).parent.parent

PYTHON = "PYTHON = sys.executable\n"
"""The line of the recipe that names the Python of rankscope."""


def install(folder: Path, texts: Mapping[str, str]) -> tuple[Path, ...]:
    """Write files to the folder `rankscope` in a folder; both are created.

    Returns:
        The files.

    Raises:
        UsageError: a file cannot be written, or is another one than rankscope wrote.
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
