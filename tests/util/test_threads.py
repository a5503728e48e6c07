"""Work in threads."""

import os
import threading
from collections.abc import Iterator

import pytest

from rankscope.util.threads import available_cores, threaded


def test_cores_are_those_this_process_may_use() -> None:
    assert 1 <= available_cores() <= (os.cpu_count() or 1)


@pytest.mark.parametrize("threads", [1, 3, None])
def test_results_come_in_the_order_of_the_items(threads: int | None) -> None:
    first_may_end = threading.Event()
    if threads == 1:
        first_may_end.set()

    def work(item: int) -> int:
        if item == 0:
            assert first_may_end.wait(20)
        if item == 1:
            first_may_end.set()
        return item * item

    if threads is None and available_cores() == 1:
        first_may_end.set()
    assert [*threaded(work, range(10), threads)] == [item * item for item in range(10)]


def test_few_items_are_taken_ahead_of_the_results() -> None:
    taken = []

    def items() -> Iterator[int]:
        for item in range(20):
            taken.append(item)
            yield item

    results = threaded(lambda item: item, items(), threads=2)
    assert next(results) == 0
    assert len(taken) == 3
    assert [*results] == [*range(1, 20)]


def test_an_error_reaches_the_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        [*threaded(lambda item: 1 // item, [1, 0, 1])]
