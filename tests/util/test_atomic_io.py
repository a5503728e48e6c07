"""Results are written whole or not at all, and where the user meant them."""

from pathlib import Path

import pytest

from rankscope.errors import UsageError
from rankscope.util.atomic_io import write_whole


def test_what_was_there_stays_until_all_is_written(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    target.write_bytes(b"old")
    write_whole(target, b"new")
    assert target.read_bytes() == b"new"
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("relative", [True, False])
def test_a_link_is_written_through(tmp_path: Path, relative: bool, exists: bool) -> None:
    """Also a link to a link, and one to a file that is not there yet."""
    (tmp_path / "elsewhere").mkdir()
    target = tmp_path / "elsewhere" / "real.html"
    if exists:
        target.write_bytes(b"old")
    near, link = tmp_path / "near", tmp_path / "link"
    near.symlink_to(Path("elsewhere/real.html") if relative else target)
    link.symlink_to("near")
    write_whole(link, b"new")
    assert link.is_symlink()
    assert near.is_symlink()
    assert target.read_bytes() == b"new"
    assert [each.name for each in target.parent.iterdir()] == ["real.html"]


def test_a_link_to_nowhere_is_refused(tmp_path: Path) -> None:
    gone, first, second = (tmp_path / name for name in ("gone", "first", "second"))
    gone.symlink_to(tmp_path / "no folder" / "file")
    first.symlink_to(second)
    second.symlink_to(first)
    for link in (gone, first):
        with pytest.raises(UsageError) as refused:
            write_whole(link, b"new")
        assert refused.value.hint
        assert link.is_symlink()
