"""What CI runs for a change: the long runs that cover a file of it, and everything else."""

import json
import os
import re
import shutil
import tomllib
from pathlib import Path

import pytest

from rankscope.model.kinds import VerdictKind
from tests.freeze import FEW, SCREEN_LINES, differences, freeze, jobs
from tests.support import ROOT, python, ran

CI = ROOT / ".ci"
GROUPS = tomllib.loads((CI / "groups.toml").read_text("utf-8"))
WORKFLOW = (ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8")


@pytest.mark.parametrize("group", GROUPS)
def test_paths_of_a_group_are_there(group: str) -> None:
    for path in (*GROUPS[group]["tests"], *GROUPS[group]["covers"]):
        assert (ROOT / path).exists(), path
    assert GROUPS[group]["covers"]


def git(folder: Path, *words: str) -> str:
    """What git says; in a name that no machine has to configure."""
    fields = ("AUTHOR_NAME", "AUTHOR_EMAIL", "COMMITTER_NAME", "COMMITTER_EMAIL")
    named = {f"GIT_{field}": "x" for field in fields}
    done = ran("git", *words, cwd=folder, env={**os.environ, **named}, check=True)
    return done.out.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with two groups, `main`, and a branch that leaves it."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    (tmp_path / ".ci").mkdir()
    shutil.copy(CI / "plan", tmp_path / ".ci")
    (tmp_path / ".ci" / "groups.toml").write_text(
        '[kills]\ntests = ["tests/"]\ncovers = ["store/"]\n'
        '[browser]\ntests = ["tests/test_page.py", "tests/test_new.py"]\ncovers = ["page/"]\n'
    )
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_page.py").touch()
    (tmp_path / "tests" / "test_kills.py").touch()
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "one")
    git(tmp_path, "switch", "-q", "-c", "work")
    return tmp_path


def plan(repository: Path, **environment: str) -> tuple[str, str]:
    """What the plan says to the shell, and to the reader."""
    kept = {name: value for name, value in os.environ.items() if name not in ("BASE", "CI_ALL")}
    done = python(".ci/plan", cwd=repository, env={**kept, **environment}, check=True)
    return done.out, done.err


def commit(repository: Path, path: str) -> None:
    (repository / path).parent.mkdir(exist_ok=True)
    (repository / path).write_text("changed")
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", path)


def test_long_runs_whose_files_did_not_change_are_left_out_and_said_so(repository: Path) -> None:
    base = git(repository, "rev-parse", "HEAD")
    commit(repository, "store/writer.py")
    commit(repository, "page/README.md")
    commit(repository, "tests/test_new.py")
    out, said = plan(repository)
    assert f"base={base}\n" in out
    assert "run_kills=1\n" in out
    assert "run_browser=\n" in out
    assert "ignored='--ignore=tests/test_page.py'" in out
    assert "kills runs: store/writer.py changed" in said
    assert "browser skipped: nothing changed in page/" in said
    assert "slow='slow and not nightly'\n" in out
    assert "nightly are skipped" in said
    everything, _ = plan(repository, CI_ALL="1")
    assert "run_browser=1\n" in everything
    assert "slow='slow'\n" in everything
    assert "run_kills=\n" in plan(repository, BASE="HEAD~1")[0], "it changed before"
    (repository / "page" / "new.py").write_text("not committed yet")
    assert "browser runs: page/new.py changed" in plan(repository)[1]


def test_where_no_base_is_known_everything_runs(repository: Path) -> None:
    git(repository, "switch", "-q", "main")
    commit(repository, "README.md")
    out, said = plan(repository)
    assert out.startswith("base=\nslow='slow and not nightly'\n")
    assert "run_kills=1\nrun_browser=1\nignored=''" in out
    assert said.count("runs: no base to compare with") == 2


def test_on_main_a_change_begins_after_a_pause(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(repository, "switch", "-q", "main")
    base = git(repository, "rev-parse", "HEAD")
    now = int(git(repository, "log", "-1", "--format=%ct"))
    for minutes, path in ((600, "store/a.py"), (630, "README.md")):
        monkeypatch.setenv("GIT_COMMITTER_DATE", f"@{now + 60 * minutes} +0000")
        commit(repository, path)
    out, _ = plan(repository)
    assert out.startswith(f"base={base}\nslow='slow and not nightly'\nrun_kills=1\nrun_browser=\n")


def test_the_workflow_runs_every_part_with_pinned_actions() -> None:
    [listed] = re.findall(r"^parts=\((.*)\)$", (CI / "run").read_text("utf-8"), re.MULTILINE)
    [matrix] = re.findall(r"parts: \[(.*)\]", WORKFLOW)
    nightly = [part for words in re.findall(r'"([^"]+)"', matrix) for part in words.split()]
    assert {*nightly, "pythons"} == {*listed.split()}
    used = re.findall(r"uses: (\S+)", WORKFLOW)
    assert used
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", each) for each in used)


@pytest.mark.slow
def test_ci_shows_a_change_of_any_class_of_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    some = [job for job in jobs() if job.name in FEW]
    assert {job.name for job in some} == {*FEW}
    classes = {}
    for job in some:
        answers = freeze(job, only=("ingest", "imbalance_by_rank"))
        answer = answers[f"imbalance_by_rank of {job.name}"]
        output = json.loads(answer.partition("--- stdout")[2].partition("--- stderr")[0])
        classes[job.name] = output["verdict"]["class"]
    assert {*classes.values()} == {*VerdictKind}, classes


def test_a_change_of_answers_is_shown_once_and_at_most_a_screen_long() -> None:
    old = {
        "a of x": "head\nRank 2 is slow.\nfoot", "b of x": "other\nRank 2 is slow.\n",
        "c of x": "\n".join(map(str, range(500))), "d of x": "same",
    }  # fmt: skip
    new = {
        **old, "a of x": "head\nRank 3 is slow.\nfoot", "b of x": "other\nRank 3 is slow.\n",
        "c of x": "",
    }  # fmt: skip
    (sentence, where), (long, _) = differences(old, new).items()
    assert where == ["a of x", "b of x"]
    assert sentence.splitlines()[1:] == [" head", "-Rank 2 is slow.", "+Rank 3 is slow.", " foot"]
    assert len(long.splitlines()) == SCREEN_LINES + 1
    assert "more lines" in long.splitlines()[-1]
    assert differences(old, old) == {}
