"""`python -m tests.bench.fleets`: how often the suspects of simulated fleets are right.

50 hosts of 8 GPUs, 30 jobs on random parts; 100 seeds of each kind of culprit, and of none.
"""

import argparse

from rankscope.history.fleet.fleet import fleet_of
from tests.history.fleet.fleets import Plan, fleet

LEAST_JOBS = 3
"""A culprit that took part in fewer jobs cannot be a suspect."""


def main() -> None:
    """Print a line per kind of culprit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=30)
    parser.add_argument("--cost", type=float, default=0.025)
    given = parser.parse_args()
    print("culprit   right        nobody  others too  wrong  (with enough jobs)")
    for culprit in ("none", "rank", "card", "host", "later", "moved", "slot"):
        counts = dict.fromkeys(("right", "nobody", "others too", "wrong"), 0)
        possible = 0
        for seed in range(given.seeds):
            plan = Plan(culprit, seed, jobs=given.jobs, cost=given.cost)
            collected, truth = fleet(plan)
            if truth.suspects and truth.jobs < LEAST_JOBS:
                continue
            possible += 1
            found = {(each.kind, each.id) for each in fleet_of(collected).suspects}
            if found == truth.suspects:
                counts["right"] += 1
            elif not found:
                counts["nobody"] += 1
            elif truth.suspects and found > truth.suspects:
                counts["others too"] += 1
            else:
                counts["wrong"] += 1
        right = f"{counts['right']} / {possible}"
        rest = "".join(f"{counts[name]:>12}" for name in ("nobody", "others too", "wrong"))
        print(f"{culprit:<10}{right:<12}{rest}")


if __name__ == "__main__":
    main()
