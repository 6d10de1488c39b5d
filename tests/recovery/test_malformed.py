"""Thousands of damaged notes beside a state: each is one to go on from, or refused in words of ours, and at once."""

import copy
import json
import logging
import math
import os
import time
from random import Random

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfscale.errors import RecoveryError
from tfscale.recovery.counters import read_random_streams, restore_callbacks, restore_random_streams
from tfscale.recovery.decision import Settings
from tfscale.recovery.directory import RunDirectory
from tfscale.recovery.facts import check_facts
from tfscale.recovery.folder import Saved
from tfscale.recovery.lease import LeaseNote, parse_note
from tfscale.recovery.lock import _read, describe_holder
from tfscale.recovery.manifest import Manifest, StoredFile, parse_manifest
from tfscale.recovery.position import Position, find_data_start
from tfscale.recovery.values import put_in_arrays, take_out_arrays

MAX_S = 1.0
MAX_CHARACTERS = 300
DIGEST = {"at": [0, 3, 8], "rows": 8, "all": "0f", "first": ["1a", "2b"]}
MARKS = ["__array__", "__tensor__", "__npy__", "__objects__", "__int__", "__scalar__", "__tuple__", "__bytes_array__"]
DEEP = json.loads("[" * 300 + "]" * 300)
ODD = [None, True, False, -1, 10**400, 2**63, 1.5, math.inf, math.nan, "", "x" * 9000, "\x1b[2J", [], [[]], {}, DEEP]
ODD += [{name: value} for name in MARKS for value in (0, 99, [], "zz", ["float99", 1], [[9**9], []])]


def notes():
    """A note as a run makes it, and the arrays beside it."""
    arrays = [np.ones((3, 2), np.float32), np.array(7, np.int64)]
    states = {"callbacks": {"History 0": {"epoch": [0], "history": {}}}, "random": read_random_streams()}
    states["callbacks"]["Own 0"] = (1, {2, 3}, b"x", np.arange(3))
    others = []
    states = take_out_arrays(states, others)
    arrays += others
    facts = {
        "format": 2,
        "run": {"examples": 40},
        "bits": {"deterministic": True, "keras": "3.15.1"},
        "position": [1, 3],
        "steps": 8,
        "stopped": False,
        "num_replicas": 2,
        "global_batch": 8,
        "examples_offset": 0,
        "examples_seen": 64,
        "first_rates": [0.1, None],
        "rates": [0.1, 0.05],
        "data": {"training": [5, 1], "passes": 1},
        "states": states,
        "variables": [["dense/kernel", [3, 2], "float32"], ["iteration", [], "int64"]],
        "arrays": [[list(array.shape), array.dtype.name] for array in arrays],
        "next": {**DIGEST, "earlier": [DIGEST]},
    }
    return json.loads(json.dumps(facts)), arrays


def places(value):
    """Every holder in a value and the keys into it."""
    if isinstance(value, dict | list):
        # Of a generator's hundreds of words a few.
        keys = list(value) if isinstance(value, dict) else range(min(len(value), 5))
        for key in keys:
            yield value, key
            yield from places(value[key])


def damaged(random, good):
    note = copy.deepcopy(good)
    for _ in range(random.choice([0, 1, 1, 2])):
        holder, key = random.choice(list(places(note)))
        if random.random() < 0.2:
            del holder[key]
        else:
            holder[key] = copy.deepcopy(random.choice(ODD))
        if not note:
            break
    return note if random.random() < 0.98 else random.choice(ODD)


def torn(random, content):
    """Bytes, some of them changed, or cut short."""
    if random.random() < 0.3:
        at = random.randrange(len(content))
        content = (
            content[:at] + random.choice([b"", b"\xff", b"\0", b"[" * 9000, b"9" * 5000, b'"']) + content[at + 1 :]
        )
    return content if random.random() < 0.9 else content[: random.randrange(len(content))]


def try_many(check, *, seeds, each):
    """Runs `check(random)` for many seeds; returns how many were taken and how many refused by a `ValueError`."""
    ends = {"taken": 0, "refused": 0}

    @settings(max_examples=seeds, deadline=None)
    @given(st.integers(0, 2**32))
    def try_seed(seed):
        random = Random(seed)
        for _ in range(each):
            began_s = time.process_time()
            try:
                check(random)
                ends["taken"] += 1
            except ValueError as error:
                ends["refused"] += 1
                said = str(error)
                assert said.startswith("its "), said
                assert len(said) <= MAX_CHARACTERS
                assert said.isprintable()
            assert time.process_time() - began_s < MAX_S

    try_seed()
    return ends


def test_what_is_noted_beside_a_state():
    good, arrays = notes()
    check_facts(Saved(good, arrays))
    streams = read_random_streams()

    def check(random):
        facts = damaged(random, good)
        check_facts(Saved(facts, arrays))
        # What passes can be used, as a run does.
        find_data_start(Position(*facts["position"]), None, None)
        states = put_in_arrays(facts["states"], arrays[len(facts["variables"]) :])
        restore_random_streams(states["random"])

    try:
        ends = try_many(check, seeds=10, each=50)
    finally:
        restore_random_streams(streams)
    assert min(ends.values()) > 50, ends


def test_a_note_of_another_kind_of_numpy_generator():
    good, arrays = notes()
    own = np.random.get_bit_generator()
    np.random.set_bit_generator(np.random.PCG64(1))
    try:
        with pytest.raises(ValueError, match="is a 'MT19937', and here it is a PCG64"):
            check_facts(Saved(good, arrays))
        check_facts(Saved(*notes()))
        states = read_random_streams()
    finally:
        np.random.set_bit_generator(own)
    assert states["numpy"]["bit_generator"] == "PCG64"


def test_manifests():
    good = json.loads(Manifest(7, True, (StoredFile("index", 3, "0" * 64),)).to_bytes())

    def check(random):
        found = parse_manifest(torn(random, json.dumps(damaged(random, good)).encode()))
        assert found == parse_manifest(found.to_bytes())

    ends = try_many(check, seeds=15, each=50)
    assert min(ends.values()) > 50, ends


def test_notes_of_locks_and_leases(tmp_path):
    """Whoever holds a directory may have left anything there: somebody holds it, and there is a way to say who."""
    good = LeaseNote("elsewhere", 7, "2026-01-01", "0123", "boot/99", 5.0)
    path = tmp_path / "lock"

    def check(random):
        found = parse_note(torn(random, json.dumps(damaged(random, json.loads(good.to_bytes()))).encode()))
        assert 0 <= found.pid < 2**31
        assert not math.isnan(found.renewed_s)
        path.write_bytes(torn(random, json.dumps(damaged(random, ["elsewhere", 7, "2026-01-01"])).encode()))
        descriptor = os.open(path, os.O_RDONLY)
        try:
            said = describe_holder(_read(descriptor))
        finally:
            os.close(descriptor)
        assert said.isprintable()
        assert len(said) < 400

    assert try_many(check, seeds=15, each=50)["refused"] == 0


def write(files, facts, arrays):
    files.write(Saved(facts, arrays))
    files.wait()
    assert files.failure is None


CHANGES = {
    "a list": lambda facts: [1],
    "a fact is missing": lambda facts: {name: each for name, each in facts.items() if name != "variables"},
    "a fact of another kind": lambda facts: {**facts, "position": ["x", None]},
    "other shapes": lambda facts: {**facts, "arrays": [[[9], "float32"], *facts["arrays"][1:]]},
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_state_with_such_a_note_is_passed_over(tmp_path, caplog, name):
    good, arrays = notes()
    changed = CHANGES[name](good)
    settings = Settings(tmp_path, every_steps=None, every_s=None, keep=2, mtbf_s=1.0)
    files = RunDirectory(settings).files
    if isinstance(changed, dict):
        write(files, good, arrays)
        write(files, changed, arrays)
        with caplog.at_level(logging.ERROR, "tfscale"):
            assert files.read_newest().facts == good
        assert "state-2 cannot be read and is passed over: its note is not that of a run: " in caplog.text
        write(files, changed, arrays)
        write(files, changed, arrays)
    else:
        files._within.write(Saved(changed, arrays), 1)
    with pytest.raises(RecoveryError, match="none of which can be read"):
        files.read_newest()


@pytest.mark.parametrize("state", [5, {}, {"rows": 5}, {"wait": 1, "__class__": 3}])
def test_a_callback_is_given_what_is_none_of_its_own(tmp_path, state):
    logger = keras.callbacks.CSVLogger(str(tmp_path / "log.csv"))
    logger.on_train_begin()
    try:
        with pytest.raises(RecoveryError, match="CSVLogger, whose saved state raised"):
            restore_callbacks([logger], {"CSVLogger 0": state})
    finally:
        logger.on_train_end()
    stopping = keras.callbacks.EarlyStopping()
    if isinstance(state, dict):
        restore_callbacks([stopping], {"EarlyStopping(val_loss) 0": state})
        assert type(stopping) is keras.callbacks.EarlyStopping
    else:
        with pytest.raises(RecoveryError, match="EarlyStopping, whose saved state raised"):
            restore_callbacks([stopping], {"EarlyStopping(val_loss) 0": state})
