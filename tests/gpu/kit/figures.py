"""Figures, and how sure they are."""
import statistics

CLEAR = 3.0  # percent within which a median is known well enough


def rate_of(said):
    return said["count"] / said["seconds"]


def surely(values):
    """The median, and the values between which the true one is in 95 of 100 cases, by rank."""
    values = sorted(values)
    off = 0.98 * len(values) ** 0.5
    rank = lambda r: values[min(len(values) - 1, max(0, round(r)))]
    middle = (len(values) - 1) / 2
    return statistics.median(values), rank(middle - off), rank(middle + off)


def clear(ratios):
    _, low, high = surely(ratios)
    return high - low <= CLEAR


def parts_of(values):
    total = sum(values) or 1
    return [100 * v / total for v in values]


def slashes(values):
    return "/".join(show(v) for v in values)


def show(value):
    return "?" if value is None else f"{value:.1f}"


def longest_gap(marks, begin, end):
    times = [t for t, _ in marks if begin <= t <= end]
    edges = [begin] + times + [end]
    return max(b - a for a, b in zip(edges, edges[1:])) if times else end - begin
