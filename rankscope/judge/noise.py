"""How far a rank wanders around its own level. See METHOD.md#verdict."""

import math

import numpy as np

from rankscope.judge.excess import Excess
from rankscope.judge.levels import FEW, MUCH
from rankscope.judge.timing import quick_part
from rankscope.util.numbers import ROBUST


def noise_of(excess: Excess) -> float:
    """How far a rank usually wanders around its own median, as a share of the iteration.

    What ranks of a host have in common is noise, too. The median deviation of few values is low
    (Croux, Rousseeuw, Comput. Stat. 1992).
    """
    spread, share, roles, hosts = [], excess.share, excess.roles, excess.hosts
    for role in np.unique(roles):
        of_role = share[roles == role]
        if len(of_role) < 2:
            continue
        by_host = np.lexsort((of_role.mean(axis=1), hosts[roles == role]))
        of_role, on = of_role[by_host], hosts[roles == role][by_host]
        # the quickest ranks of all hosts, then the second ones: neighbours are on several hosts
        place = np.arange(len(on)) - np.searchsorted(on, on)
        of_role = of_role[np.lexsort((of_role.mean(axis=1), place))]
        difference = of_role - np.roll(of_role, 1, axis=0)
        count = difference.shape[1]
        if count >= FEW:
            # only a gap between two values can part the iterations
            wide = np.flatnonzero(np.ptp(difference, axis=1) > MUCH)
            parts = np.diff(np.sort(difference[wide], axis=1)).max(axis=1) > MUCH
            for changing in wide[parts]:
                row = difference[changing]
                first = quick_part(1 + row)
                if not first.all():  # each part around its own median
                    row[~first] += np.median(row[first]) - np.median(row[~first])
            difference -= np.median(difference, axis=1, keepdims=True)
            difference *= count / (count - 0.8)
        spread += np.median(np.abs(difference), axis=1).tolist()
    return ROBUST / math.sqrt(2) * float(np.quantile(spread, 0.25)) if spread else 0.0
