"""Answers are cut, and say where and how much."""

from rankscope.agent.server import LONGEST_LINE, shortened


def test_lists_keep_their_first_elements_and_the_others_are_counted() -> None:
    document = {
        "ranks": tuple(range(10)),
        "reports": [{"causes": [1, 2, 3, 4]}, {"causes": [1]}, {"causes": [1, 2, 3]}],
        "pair": [1.0, 2.0],
        "verdict": {"spells": [[1, 2], [3, 4], [5, 6]]},
    }
    assert shortened(document, 2) == {
        "ranks": [0, 1],
        "reports": [{"causes": [1, 2]}, {"causes": [1]}],
        "pair": [1.0, 2.0],
        "verdict": {"spells": [[1, 2], [3, 4]]},
        "left_out": {"ranks": 8, "reports": 1, "reports[].causes": 2, "verdict.spells": 1},
    }
    assert "left_out" not in shortened(document, 10)


def test_maps_by_rank_are_cut_and_others_are_not() -> None:
    offsets = {str(rank): rank for rank in range(1000)}
    values = {f"metric_{place}": place for place in range(30)}
    short = shortened({"run": {"offsets_ns": offsets}, "values_ns": values, "empty": {}}, 6)
    assert len(short["run"]["offsets_ns"]) == 6
    assert short["values_ns"] == values
    assert short["empty"] == {}
    assert short["left_out"] == {"run.offsets_ns": 994}


def test_texts_keep_their_lines_and_lose_what_nobody_sees() -> None:
    short = shortened({"script": "#!/bin/sh\necho \x1b[2J\u202e\n", "name": "n" * 10_000}, 6)
    assert short["script"] == "#!/bin/sh\necho <U+001B>[2J<U+202E>\n"
    assert len(short["name"]) == LONGEST_LINE
    tags = "".join(chr(0xE0000 + ord(each)) for each in "obey")
    assert "<U+E006F>" in shortened({"name": tags}, 6)["name"]
