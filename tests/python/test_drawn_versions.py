"""Which weights drew an answer is kept for its sample, within a bound."""

from slime.environments.drawn_versions import DrawnVersions


def test_an_answer_is_known_once_by_its_tokens_and_log_probs():
    versions = DrawnVersions()
    versions.note([1, 2], [-0.5, -0.25], [[7, 2]])
    assert versions.take([1, 2], [-0.5, -0.5]) is None
    assert versions.take([1, 2], [-0.5, -0.25]) == [[7, 2]]
    assert versions.take([1, 2], [-0.5, -0.25]) is None and len(versions) == 0


def test_answers_that_nobody_takes_do_not_pile_up():
    versions = DrawnVersions(most_tokens=10)
    for i in range(1000):
        versions.note([i, i, i, i], [-1.0] * 4, [[i, 4]])
    assert len(versions) == 2, "8 tokens, and 12 would be too many"
    assert versions.take([0] * 4, [-1.0] * 4) is None
    assert versions.take([998] * 4, [-1.0] * 4) == [[998, 4]]
    versions.note([5] * 20, [-1.0] * 20, [[5, 20]])
    assert len(versions) == 1 and versions.take([5] * 20, [-1.0] * 20) == [[5, 20]], "the newest is kept however long it is"


def test_equal_answers_are_taken_one_by_one():
    versions = DrawnVersions()
    versions.note([1, 2], [-1.0, -1.0], [[1, 2]])
    versions.note([1, 2], [-1.0, -1.0], [[2, 2]])
    assert len(versions) == 2
    assert [versions.take([1, 2], [-1.0, -1.0]) for _ in range(3)] == [[[1, 2]], [[2, 2]], None]
