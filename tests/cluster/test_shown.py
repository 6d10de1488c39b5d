import pytest

from tfscale.cluster.shown import distinct, printable, quoted

EVIL = ["\x1b[31m", "\r", "\b", "\x07", "\x9b1m", "\u202e", "\u2028", "\x00", "\ud800", "\U000e0041"]


@pytest.mark.parametrize("text", EVIL)
def test_no_order_to_the_terminal_is_left(text):
    for shown in (printable(f"a{text}b"), distinct(f"a{text}b"), quoted(f"a{text}b"), quoted({text: [text]})):
        assert shown.isprintable()
        assert shown != f"a{text}b"


@pytest.mark.parametrize("text", ["", "worker 1", "größe, 大きさ", "two\nlines", "it's"])
def test_what_a_person_wrote_stays(text):
    assert printable(text) == distinct(text) == text


@pytest.mark.parametrize("text", ["", "a", "a" * 40, "\x1b" * 40, "\x1b" * 9000, "大" * 9000])
def test_length(text):
    assert len(printable(text, 40)) <= 40
    assert len(distinct(text, 40)) <= 40
    assert len(quoted(text, 40)) <= 40
    assert len(quoted([text] * 50, 40)) <= 40


def test_what_differs_at_its_end_is_shown_to_differ():
    assert distinct("a" * 9000 + "1") != distinct("a" * 9000 + "2")
    assert distinct(distinct("a" * 9000)) == distinct("a" * 9000)


def test_depth():
    nested = []
    for _ in range(100_000):
        nested = [nested]
    assert "..." in quoted(nested)
