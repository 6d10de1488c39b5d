"""What is in a store, by the names that are there."""

import json

import pytest

from tfscale.recovery.manifest import (
    Manifest,
    StoredFile,
    complete,
    last_number,
    leftovers,
    names_of,
    parse_manifest,
)

INDEX = StoredFile("index", 3, "0" * 64)
DATA = StoredFile("data-00000-of-00001", 0, "f" * 64)
GOOD = {
    "format": 1,
    "number": 7,
    "is_start": True,
    "files": [{"suffix": "index", "num_bytes": 3, "sha256": "0" * 64}],
}


def test_comes_back_as_it_was():
    manifest = Manifest(12, True, (DATA, INDEX))
    assert parse_manifest(manifest.to_bytes()) == manifest


def test_format_of_the_first_version():
    assert parse_manifest(json.dumps(GOOD).encode()) == Manifest(7, True, (INDEX,))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"{",
        b"[" * 100_000,
        b"null",
        b"[]",
        json.dumps({**GOOD, "format": 2}).encode(),
        json.dumps({**GOOD, "files": []}).encode(),
        json.dumps({**GOOD, "files": [5]}).encode(),
        json.dumps({**GOOD, "files": [{"suffix": "index"}]}).encode(),
        *(
            json.dumps({**GOOD, "files": [*GOOD["files"], {**GOOD["files"][0], **changed}]}).encode()
            for changed in ({"suffix": "../../x"}, {"suffix": "index/.."}, {"num_bytes": -1}, {"sha256": "0" * 63})
        ),
        Manifest(12, True, (INDEX,)).to_bytes()[:-5],
    ],
)
def test_anything_else_is_none(content):
    with pytest.raises(ValueError, match="its manifest"):
        parse_manifest(content)


NAMES = [
    "lock",
    "state-0000000a-10.json",
    "state-0000000a-10.index",
    "state-0000000b-9.json",
    "state-0000000b-9.data-00000-of-00001",
    "state-0000000b-9.index",
    # Without a manifest.
    "state-0000000b-11.index",
    # Of the user, or of another version.
    "state-9.index",
    "state-0000000b-9.index.bak",
    "epochs",
]


@pytest.mark.parametrize(
    ("names", "stems", "number", "left"),
    [
        ([], [], 0, []),
        (["lock", "epochs", "state-.json"], [], 0, []),
        (NAMES, ["state-0000000b-9", "state-0000000a-10"], 11, ["state-0000000b-11.index"]),
    ],
)
def test_what_is_there(names, stems, number, left):
    assert complete(names) == stems
    assert last_number(names) == number
    assert leftovers(names) == left


def test_a_manifest_is_deleted_first():
    assert names_of(["state-0000000b-9"], NAMES) == [
        "state-0000000b-9.json",
        "state-0000000b-9.data-00000-of-00001",
        "state-0000000b-9.index",
    ]
