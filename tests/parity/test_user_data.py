import pytest

from tests.processes import run_case


@pytest.fixture(scope="module")
def found():
    return run_case("tests.parity.cases_data:everything")


def test_forms(found):
    read, expected = found["forms"]
    assert read == expected


def test_refused_with_rule_and_received(found):
    messages, expected = found["refused"]
    assert messages.keys() == expected.keys()
    for name, message in messages.items():
        assert expected[name] in message
        assert "\nReceived: " in message


def test_digest_tells_data_apart(found):
    assert found["digests"] == [True, False, False, False, True, False, True, False, False]


def test_every_pass_over_a_shuffled_dataset_is_the_same(found):
    first, *others = found["passes"]
    assert first != sorted(first)
    assert others == [first] * 4


def test_random_layers_are_switched_off(found):
    off, still_on, gap = found["random_layers"]
    assert {name.split(" ")[0] for name in off if not name.startswith("dropout")} == {
        "alpha",
        "flip",
        "gaussian",
        "inner",
        "lstm_cell",
        "noise",
        "rotation",
        "spatial",
    }
    assert still_on == ("own_noise (Noise)",)
    assert gap == 0.0
