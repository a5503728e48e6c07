"""Work on several cores at once, in threads: numpy and polars let others run meanwhile."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

MOST_THREADS = 8
"""Most threads at once: each holds an item and what it computes from it."""


def available_cores() -> int:
    """The number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cores_to_use() -> int:
    """The default number of threads that work at once."""
    return min(available_cores(), MOST_THREADS)


def threaded(
    work: Callable[[Item], Result], items: Iterable[Item], threads: int | None = None
) -> Iterator[Result]:
    """Yield the result of each item, in their order.

    Args:
        work: runs in several threads at once; the result must not depend on which one ends first.
        items: taken in the caller's thread, few ahead of the results.
        threads: 1 works on one item after the other; None: `cores_to_use`.
    """
    threads = threads or cores_to_use()
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(threads, "rankscope-work") as pool:
        for item in items:
            waiting.append(pool.submit(work, item))
            del item  # results that were taken are dropped
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
