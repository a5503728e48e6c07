"""`python -m tests.forge SCENE OUT`: forge a scene's reports and truth into a folder."""

import argparse
import ast
import sys
from pathlib import Path

from tests.forge import SCENES, forge, scene


def _parameter(text: str) -> tuple[str, object]:
    key, _, value = text.partition("=")
    if value.lower() in ("true", "false"):
        return key, value.lower() == "true"
    try:
        return key, ast.literal_eval(value)
    except (SyntaxError, ValueError):
        return key, value


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and give its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.forge", description=__doc__)
    parser.add_argument("scene", nargs="?", choices=sorted(SCENES), help="which scene")
    parser.add_argument("out", nargs="?", type=Path, help="folder to write to")
    parser.add_argument("--ranks", type=int, help="number of ranks (default: the scene's)")
    parser.add_argument("--iterations", type=int, help="number of iterations (likewise)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--schema", choices=("2022.4", "2023.4"), default="2023.4")
    parser.add_argument(
        "--set", action="append", default=[], type=_parameter, metavar="NAME=VALUE",
        help="a parameter of the scene; may be repeated",
    )  # fmt: skip
    parser.add_argument("--list", action="store_true", help="list the scenes")
    args = parser.parse_args(arguments)
    if args.list:
        for name, make in SCENES.items():
            print(f"{name:20} {(make.__doc__ or '').splitlines()[0]}")
        return 0
    if args.scene is None or args.out is None:
        parser.error("SCENE and OUT are needed")
    job = scene(args.scene, args.ranks, args.iterations, args.seed, args.schema, **dict(args.set))
    forge(job, args.out)
    print(f"{job.name}: {job.ranks} ranks, {job.iterations} iterations in {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
