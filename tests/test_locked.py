"""The locked dependencies, `.ci/locked/`, beside those that pyproject.toml asks for."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
NO_BOUND = {"pyarrow"}
"""Dependencies without an upper bound; pyproject.toml says why."""


def locked(name: str) -> dict[str, list[Requirement]]:
    """The requirements of a lock file by name; one has several where they differ by Python."""
    text = (ROOT / ".ci" / "locked" / name).read_text("utf-8").replace("\\\n", " ")
    found: dict[str, list[Requirement]] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            plain, *hashes = re.split(r"\s+--hash=", line.strip())
            assert hashes, f"{plain} has no hash"
            requirement = Requirement(plain)
            found.setdefault(requirement.name, []).append(requirement)
    return found


def asked(*extras: str) -> list[Requirement]:
    optional = PROJECT["optional-dependencies"]
    return [*map(Requirement, PROJECT["dependencies"])] + [
        Requirement(each) for extra in extras for each in optional[extra]
    ]


@pytest.mark.parametrize(
    ("name", "extras"),
    [
        ("user.txt", ()),
        ("development.txt", ("cluster", "test")),
        ("oldest.txt", ("cluster", "test")),
    ],
)
def test_every_dependency_is_locked_to_a_version_that_is_allowed(
    name: str, extras: tuple[str, ...]
) -> None:
    there = locked(name)
    for wanted in asked(*extras):
        versions = [next(iter(each.specifier)).version for each in there[wanted.name]]
        for version in versions:
            assert wanted.specifier.contains(version), f"{wanted}: run .ci/lock"


def test_users_and_developers_get_the_same_versions() -> None:
    developers = locked("development.txt")
    for name, versions in locked("user.txt").items():
        assert {str(each.specifier) for each in versions} == {
            str(each.specifier) for each in developers[name]
        }


def test_the_oldest_versions_are_the_lower_bounds() -> None:
    there = locked("oldest.txt")
    for wanted in asked("cluster", "test"):
        bounds = [each.version for each in wanted.specifier if each.operator in (">=", "==")]
        [version] = [next(iter(each.specifier)).version for each in there[wanted.name]]
        assert f"{version}.".startswith(f"{bounds[0]}."), f"{wanted}: run .ci/lock"


def test_a_dependency_has_an_upper_bound() -> None:
    for wanted in asked():
        bounds = {each.operator for each in wanted.specifier}
        assert (wanted.name in NO_BOUND) != bool(bounds & {"<", "=="}), wanted
