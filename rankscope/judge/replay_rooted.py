"""Rooted collectives in a replay: each member goes its own time after those came that it waits for.

See METHOD.md#what-if.
"""

from typing import NamedTuple

import numpy as np

from rankscope.judge.replay_inputs import Numbers, ReplayInput
from rankscope.match.waits import arrived_by
from rankscope.model.intervals import Flags, Floats
from rankscope.util.numbers import NEVER


class Rooted(NamedTuple):
    """Rooted instances of a step that have equally many members, a row each."""

    which: Numbers  # their places in the step
    calls: Numbers  # places of their calls in the step, in the order in which they began
    until: Numbers  # the last call, by its place in the row, that began before each went
    service: Floats  # what each took from then on, ns


class RootedCalls:
    """When the calls of each rank and communicator begin, one after the other.

    `streams`: the rank and communicator of each call, as a number.

    Args:
        run: the input of the replay.
        calls: its calls in the order of the replay.
        done: when each instance is through.
    """

    def __init__(self, run: ReplayInput, calls: Numbers, done: Numbers) -> None:
        rank, groups = np.repeat(np.arange(len(run.counts)), run.counts), int(run.group.max()) + 1
        pairs, self.streams = np.unique((rank * groups + run.group)[calls], return_inverse=True)
        self.count = len(pairs)  # of all ranks with all communicators there may be millions
        self._free = np.full(self.count, -NEVER)
        self._arrived = run.arrived[calls]
        self._went = np.where(run.rooted, run.ended, done[run.instance])[calls]

    def step(self, of: slice, rooted: Flags, sizes: Numbers) -> tuple[list[Rooted], Numbers]:
        """The rooted instances of a step, and the place of the end of each call in `with_rooted`.

        Args:
            of: the calls of the step.
            rooted: of each instance, whether it is.
            sizes: how many calls it has.
        """
        streams = self.streams[of]
        began = np.maximum(self._arrived[of], self._free[streams])
        went = np.maximum(self._went[of], began)
        self._free[streams] = went
        first = np.cumsum(sizes) - sizes
        ends = np.repeat(np.arange(len(sizes)), sizes)
        size_of, known = np.where(rooted, sizes, 0), len(sizes)
        parts: list[Rooted] = []
        for size in np.unique(sizes[rooted]):
            which = np.flatnonzero(size_of == size)
            calls = first[which, None] + np.arange(size)
            calls = np.take_along_axis(calls, np.argsort(began[calls], axis=1), axis=1)
            until = arrived_by(began[calls].T, went[calls].T).T - 1
            last = np.take_along_axis(began[calls], until, axis=1)
            parts.append(Rooted(which, calls, until, (went[calls] - last).astype(np.float64)))
            ends[calls] = known + np.arange(calls.size).reshape(calls.shape)
            known += calls.size
        return parts, ends


def with_rooted(
    rooted: list[Rooted], began: Floats, end: Floats, saved: Floats | None = None
) -> Floats:
    """The ends of a step's instances, and after them those of rooted calls, one by one.

    Args:
        rooted: the rooted instances.
        began: when each call of the step can begin; a row per healing.
        end: that of each instance; for rooted ones it becomes that of the last call.
        saved: what healings take out of the transfer of each instance, ns.
    """
    ends = [end]
    for which, calls, until, service in rooted:
        of_calls = began[:, calls]
        last = np.maximum.accumulate(of_calls, axis=2)
        took = service if saved is None else np.maximum(service - saved[:, which, None], 0.0)
        went = np.take_along_axis(last, until[None], axis=2) + took
        end[:, which] = went.max(axis=2)
        ends.append(went.reshape(len(went), -1))
    return np.hstack(ends)
