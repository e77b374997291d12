"""docs/front_door.md: its commands are typed, and the words of the last column are in what they print."""

import re

import pytest
from tried_page import TriedPage, make_place

PAGE = TriedPage("front_door")
VERDICTS = ("yes", "in part", "no")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return make_place(tmp_path_factory.mktemp("front"))


def test_every_row_has_a_verdict_and_they_are_counted():
    assert len(PAGE.rows) > 75
    PAGE.check_counts(VERDICTS)


def test_what_is_not_there_is_explained():
    for row, (verdict, _, shows) in PAGE.rows.items():
        assert verdict == "yes" or len(re.sub("`[^`]*`", "", shows).split()) >= 4, row


def test_tests_and_rows_that_are_named_exist():
    PAGE.check_named(30)


@pytest.mark.parametrize("row", PAGE.commands)
def test_a_command_of_the_page_shows_what_the_page_says(place, row):
    PAGE.check_command(place, row)
