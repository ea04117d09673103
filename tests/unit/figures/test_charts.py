"""What holds for every chart: words apart and on the page, and what does not fit is refused."""

from itertools import combinations

import pytest

from labkit.base.errors import UsageError
from labkit.figures import (
    against_prediction,
    answers,
    bandwidth,
    bubble,
    by_ranks,
    expected_bars,
    fit_alpha_beta,
    gradient_sizes,
    killed_writers,
    lanes,
    losses_and_pictures,
    lost_time,
    memory,
    message_cost,
    nodes,
    over_a_step,
    paired_ratios,
    pipelines,
    processes,
    rendezvous,
    resumed_without,
    scaling,
    step_times,
    time_and_memory,
    written_by,
)
from labkit.figures.style import MAX_WIDTH

from .drawn import written
from .test_lanes import SPANS
from .test_lines import LINES, SIZES, line, rounds

MIB = 2**20
ABCDE = "abcde"  # one more than there are colours


def many(value, keys=ABCDE):
    """Give several keys the same value."""
    return dict.fromkeys(keys, value)


DECADES = [4**k for k in range(18)]
CHARTS = {
    "bandwidth": lambda: bandwidth(SIZES, line(1e-4, 1e-9), world_size=4),
    "tiny messages": lambda: bandwidth([1, 2], [1.0, 1.1], world_size=2),
    "all decades": lambda: bandwidth([1, 2**40], [1e-6, 1e4], world_size=2),
    "constant": lambda: bandwidth([1, 2**20], [1.0, 1.0], world_size=2),
    "four curves": lambda: bandwidth(
        SIZES, {f"name {f}": line(f * 1e-4, f * 1e-9) for f in (1, 2, 3, 4)}, world_size=8
    ),
    "message": lambda: message_cost(SIZES, rounds()),
    "message, tiny": lambda: message_cost([1, 2], rounds([1, 2])),
    "message, all decades": lambda: message_cost(DECADES, rounds(DECADES)),
    "scaling": lambda: scaling([1, 2, 3, 4, 8], [1e6, 2e6, 2.5e6, 3.5e6, 5e6]),
    "cluster": lambda: scaling([8, 16, 64, 512], [1e6, 2e6, 7e6, 4e7]),
    "two curves": lambda: scaling([1, 2, 4], {"DDP": [9, 17, 30], "FSDP": [7, 13, 24]}),
    "by ranks": lambda: by_ranks(LINES),
    "memory": lambda: memory({p: [n * MIB] * 4 for p, n in {"a": 1, "b": 0, "c": 1234}.items()}),
    "sixteen": lambda: memory({p: [123.4 * MIB] * 16 for p in "abcdef"}, title="all"),
    "named": lambda: memory({"a": [MIB, 9 * MIB]}, names=["Adam", "ZeroRedundancy"]),
    "a crowd": lambda: memory({"parameters": [1e12] * 32}),
    "lanes": lambda: lanes(SPANS, title="Two lanes"),
    "written": lambda: written_by([[0, 1], [2, 3]], title="One weight"),
    "resumed": lambda: resumed_without({name: [0.0, 1.0] for name in ("net", "scheduler")}),
    "killed": lambda: killed_writers([0, 100], {"save": ["nothing", "new"], "b": ["old", "new"]}),
}


@pytest.mark.parametrize("draw", CHARTS.values(), ids=CHARTS)
def test_words_do_not_overlap_and_the_figure_fits_a_page(draw, drawn):
    shown = draw()
    (figure,) = drawn
    assert figure.get_tightbbox().width <= MAX_WIDTH + 0.1
    found = [(item.get_text(), item.get_window_extent()) for item in written(figure)]
    assert not [(a, b) for (a, x), (b, y) in combinations(found, 2) if x.overlaps(y)]
    assert shown.text.count(". ") < 5


REFUSED = [
    (lambda: fit_alpha_beta([1, 2], [1]), "sizes has 2 values, seconds 1: give pairs"),
    (lambda: fit_alpha_beta([8, 8], [1, 2]), "at least two different message sizes"),
    (lambda: fit_alpha_beta([], []), "sizes is empty"),
    (lambda: fit_alpha_beta([1, 2], [0, 1]), "seconds has values that are not above zero"),
    (lambda: fit_alpha_beta([1, float("nan")], [1, 1]), "sizes has values that are not"),
    (lambda: bandwidth([1, 2], {}, world_size=2), "seconds has no curves"),
    (lambda: bandwidth([1, 2], many([1, 2]), world_size=2), "5 series; .* up to 4"),
    (lambda: bandwidth([1, 2], {"a": [1]}, world_size=2), r"seconds\['a'\] 1: give pairs"),
    (lambda: bandwidth([1, 2], [1, 2], world_size=1), "at least 2 ranks, not 1"),
    (lambda: message_cost([4, 16], []), "rows of 2 times"),
    (lambda: message_cost([4, 16], [[1.0]]), "rows of 2 times"),
    (lambda: message_cost([4, 4], [[1.0, 1.0]]), "a size twice"),
    (lambda: message_cost([0, 4], [[1.0, 1.0]]), "not above zero"),
    (lambda: message_cost([4, 16], [[1.0, 0.0]]), "times that are not above zero"),
    (lambda: message_cost([4, 16], [[1.0, 1.0]], held_out=[5]), "5 bytes are held out, but"),
    (lambda: message_cost([4, 16], [[1.0, 1.0]], held_out=[4]), "at least two different"),
    (lambda: scaling([0, 1], [1, 2]), "ranks has values that are not above zero"),
    (lambda: scaling([1, 1], [1, 2]), "ranks has a number twice"),
    (lambda: by_ranks(many({2: 1})), "5 lines; a figure shows up to 4"),
    (lambda: by_ranks({"ring": {2: 1}}, {"tree": {2: 1}}), "'tree', which is no line"),
    (lambda: memory({}), "parts has 0 parts; a figure shows 1 to 6"),
    (lambda: memory({"a": [1], "b": [1, 2]}), "parts differ in their number of ranks"),
    (lambda: memory({"a": []}), "a figure shows 1 to 32 ranks, not 0"),
    (lambda: memory({"a": [1, 2]}, names=["one"]), "names has 1 names for 2 bars"),
    (lambda: memory({"a": [-1]}), "a has sizes that are below zero or missing"),
    (lambda: expected_bars({}, {}), "at least one name"),
    (lambda: expected_bars({"ring": 0.0}, {}), "seconds above zero"),
    (lambda: expected_bars({"ring": 1.0}, {"tree": 1.0}), "measured names 'tree'"),
    (lambda: paired_ratios([1], {"a": [[1]]}, against="b"), "give one of a"),
    (lambda: paired_ratios([1, 2], {"a": [[1]]}, against="a"), "same number of rounds"),
    (lambda: paired_ratios([1], {"a": [[1]], "b": [[1, 2]]}, against="b"), "a ratio needs pairs"),
    (lambda: paired_ratios([1], {"a": [[0]]}, against="a"), "not above zero"),
    (lambda: paired_ratios([1], many([[1]]), against="a"), "up to 4"),
    (lambda: against_prediction([1, 2], {"a": [[0.0], [1]]}, {}), "not above zero"),
    (lambda: against_prediction([1, 2], {}, {"a": [1.0]}), r"predicted\['a'\] 1: give pairs"),
    (lambda: against_prediction([1], {}, many([1])), "up to 4"),
    (lambda: step_times([1, 2], {"DDP": [[1.0]]}, {}), "DDP needs at least one round for each"),
    (lambda: step_times([1, 2], {"DDP": [[], [1.0]]}, {}), "DDP needs at least one round"),
    (lambda: step_times([1, 2], many([[1], [1]]), {}), "5 series"),
    (lambda: time_and_memory(many({1: [1.0]}), {}), "up to 4"),
    (lambda: time_and_memory({"fp32": {32: []}}, {}), "fp32 needs at least one round"),
    (lambda: lost_time([1, 2], many([0.1, 0.2]), {}), "5 lines"),
    (lambda: lost_time([1, 2], {"a": [0.1]}, {}), "intervals has 2 values, a 1"),
    (lambda: gradient_sizes({"fp32": {}}), "0 parts"),
    (lambda: gradient_sizes({"fp32": many([1.0], "abc")}), "3 parts"),
    (lambda: losses_and_pictures({"x": many([1.0])}, {}), "up to 4"),
    (lambda: written_by([0, 1, 2]), r"shape \(3,\)"),
    (lambda: resumed_without(many([0.0], "abcdefg")), "up to 6"),
    (lambda: killed_writers([0, 50], {"in place": ["old"]}), "'in place' has 1 writers for 2"),
    (lambda: bubble([1, 2], {"GPipe": [0.5]}, stages=2), "'GPipe' has 1 shares for 2"),
    (lambda: over_a_step(many([1]), ["start"]), "5 lines"),
    (lambda: over_a_step({"short": [1, 2]}, ["start"]), "short has 2 numbers for 1"),
    (lambda: lanes([]), "0 lanes"),
    (lambda: lanes([(k, "x", 0, 1) for k in ABCDE]), "5 lanes"),
    (lambda: lanes([("a", "x", 1, 0)]), "'x' ends before it starts"),
    (lambda: pipelines({}), "at least one pass"),
    (lambda: pipelines({"none": []}), "at least one pass"),
    (lambda: pipelines({"empty": [[], [("F0", 0, 1, 1)]]}), "at least one pass"),
    (lambda: processes([]), "1 to 8 ranks, not 0"),
    (lambda: processes(["cpu"] * 9), "1 to 8 ranks, not 9"),
    (lambda: nodes([4, 5]), r"1 to 4 processes each, not \[4, 5\]"),
    (lambda: nodes([]), "1 to 4 nodes"),
    (lambda: rendezvous(1), "2 to 5 ranks, not 1"),
    (lambda: rendezvous(6), "2 to 5 ranks, not 6"),
    (lambda: answers({}), "0 columns"),
    (lambda: answers({str(k): {"SUM": 1} for k in range(7)}), "7 columns"),
    (lambda: answers({"a": {}}), "0 rows"),
    (lambda: answers({"a": {str(k): 1 for k in range(17)}}), "17 rows"),
    (lambda: answers({"a": {"SUM": 1}, "b": {"AVG": 1}}), "column 'b' has other rows"),
]


@pytest.mark.parametrize(("draw", "message"), REFUSED)
def test_what_does_not_fit_is_refused(draw, message):
    with pytest.raises(UsageError, match=message):
        draw()
