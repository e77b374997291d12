"""docs/seed_documents.md: its commands are typed, and the words of the last column are in what they print."""

import pytest
from tried_page import TriedPage, make_place

PAGE = TriedPage("seed_documents")
VERDICTS = ("works", "works in part", "different meaning", "missing", "refused", "not shown")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return make_place(tmp_path_factory.mktemp("documents"))


def test_every_row_has_a_verdict_and_they_are_counted():
    assert len(PAGE.rows) == 90
    PAGE.check_counts(VERDICTS)


def test_tests_and_rows_that_are_named_exist():
    PAGE.check_named(25)


@pytest.mark.parametrize("row", PAGE.commands)
def test_a_command_of_the_page_shows_what_the_page_says(place, row):
    PAGE.check_command(place, row)
