import hashlib
import hmac

import pytest

from tests.cluster.preflight.insider import key_of
from tfscale import ClusterError
from tfscale.cluster.secret import SECRET, Secret, is_signed, make_secret, read_secret, sign

WORKERS = ["a:1", "b:2"]


def test_given_secret_is_what_counts():
    first = read_secret({SECRET: "x" * 16}, WORKERS)
    assert first == read_secret({SECRET: "x" * 16}, ["c:3"])
    assert first.is_given
    assert first.key == key_of("x" * 16)
    assert first != read_secret({SECRET: "x" * 17}, WORKERS)


def test_without_one_the_list_of_workers_is_what_counts():
    first = read_secret({}, WORKERS)
    assert first == read_secret({"OTHER": "x" * 16}, WORKERS[::-1])
    assert not first.is_given
    assert first.key == key_of(addresses=WORKERS)
    assert first != read_secret({}, ["a:1", "b:3"])
    # What a list says is never a secret that was given.
    assert first.key != read_secret({SECRET: "a:1\0b:2" * 3}, WORKERS).key


@pytest.mark.parametrize("text", ["", "hunter2", "x" * 15])
def test_short_one_is_refused_and_not_shown(text):
    with pytest.raises(ClusterError, match=f"Received: {len(text)}") as caught:
        read_secret({SECRET: text}, WORKERS)
    assert not text or text not in str(caught.value).replace("openssl", "")


def test_it_is_not_printed():
    assert repr(Secret(b"key", is_given=True)) == "Secret(is_given=True)"


def test_new_ones_differ_and_are_long_enough():
    made = {make_secret() for _ in range(100)}
    assert len(made) == 100
    assert all(read_secret({SECRET: each}, ()).is_given for each in made)


def test_signature_is_the_one_of_the_standard():
    # RFC 4231, test case 2.
    expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    assert sign(b"Jefe", b"what do ya want for nothing?").hex() == expected
    assert is_signed(b"Jefe", b"what do ya want for nothing?", bytes.fromhex(expected))
    assert not is_signed(b"Jefe", b"what do ya want for nothing!", bytes.fromhex(expected))


def test_key_of_a_purpose():
    secret = Secret(b"key", is_given=True)
    expected = hmac.new(b"key", b"beats\0" + b"1" * 8, hashlib.sha256).digest()
    assert secret.derive("beats", b"1" * 8) == expected
    assert len({secret.derive(*each) for each in [("a",), ("b",), ("a", b"1"), ("a", b"2")]}) == 4
