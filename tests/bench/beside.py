"""Ways to get numbers out of reports, run on the same ones in turn."""

import json
import sqlite3
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.bench.costs import Cost, Failed, cost, settle
from tests.bench.rivals import Rival


@dataclass(frozen=True, slots=True)
class Measured:
    """What some ways took on the same reports."""

    best: dict[str, tuple[Cost, int]]  # the fastest run, and the events that it read
    absent: dict[str, str]  # and why

    def per_event(self, name: str) -> float:
        """Seconds of one event."""
        took, events = self.best[name]
        return took.seconds / events


def measured(ways: list[Rival], reports: list[Path], processes: int, repeat: int) -> Measured:
    """What each way takes, the first being rankscope; the best of some runs.

    Raises:
        Failed: rankscope fails. Where another way fails, its failure is reported.
    """
    folder = reports[0].parent.parent
    inputs = {
        way.name: way.inputs(reports, folder / way.name.replace(" ", "_").replace(",", ""))
        for way in ways
        if way.missing is None
    }
    best: dict[str, Cost] = {}
    absent = {way.name: way.missing for way in ways if way.missing is not None}
    settle(path for given in inputs.values() for path in given)
    for _ in range(repeat):  # in turn, so that what disturbs the machine disturbs all
        for way in ways:
            if way.name in absent:
                continue
            given = inputs[way.name]
            way.fresh(given)
            try:
                took = cost(way.command(processes, given), way.environment(processes))
            except Failed as failure:
                if way is ways[0]:
                    raise
                sys.stderr.write(f"{way.name}: {failure}\n")
                absent[way.name] = "failed"
                continue
            sys.stderr.write(f"{way.name}: {took.seconds:.1f} s, {took.cpu_s:.1f} s CPU\n")
            best[way.name] = min(best.get(way.name, took), took, key=lambda each: each.seconds)
    events = json.loads(best[ways[0].name].output)["events"]
    read = {
        way.name: (best[way.name], count(reports, way.tables) if way.tables else events)
        for way in ways
        if way.name not in absent
    }
    return Measured(read, absent)


def count(reports: list[Path], tables: tuple[str, ...]) -> int:
    """Rows of some tables of all the reports."""
    found = 0
    for report in reports:
        connection = sqlite3.connect(report)
        for table in tables:
            found += connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        connection.close()
    return found
