"""Which of several hosts runs a trial?"""

from tfscale.trials.sharing import Claims


def claims_of(directory, silent_s):
    return Claims(directory, silent_s, lambda name: False)


def test_what_three_hosts_were_lost_with_is_hopeless(tmp_path, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("tfscale.trials.sharing.time.monotonic", lambda: clock[0])
    with claims_of(tmp_path, 10.0) as watching:
        for lost in range(3):
            dead = claims_of(tmp_path, 10.0)
            assert dead.take(["7"], 1) == ["7"]
            assert watching.take(["7", "8"], 1) == ["8"] if lost == 0 else watching.take(["7"], 1) == []
            assert watching.release_lost(["7"]) == []
            clock[0] += 9
            assert watching.release_lost(["7"]) == []
            clock[0] += 2
            assert watching.release_lost(["7"]) == (["7"] if lost == 2 else [])
        assert watching.take(["7"], 1) == ["7"]
    # What it had not ended it gives back; nobody has to wait.
    assert sorted(path.name for path in (tmp_path / "claims").glob("[0-9]*") if "lost" not in path.name) == []


def test_a_host_that_lives_keeps_its_trial(tmp_path, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("tfscale.trials.sharing.time.monotonic", lambda: clock[0])
    with claims_of(tmp_path, 1e6) as other, claims_of(tmp_path, 1e6) as watching:
        assert other.take(["0", "1", "2"], 2) == ["0", "1"]
        for count in range(5):
            assert watching.release_lost(["0", "1"]) == []
            clock[0] += 0.9e6
            other._count(count + 1)
