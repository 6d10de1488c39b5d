import pytest

from tfscale.cluster.heartbeats import Beat
from tfscale.cluster.stall import describe_stall

WORKERS = {0: "a:1", 1: "b:1", 2: "c:1"}
WAITS = Beat(step=9, arrived=9, left=8, waiting_s=65)
READS = Beat(step=9, arrived=8, left=8, waiting_s=66)
BETWEEN = Beat(step=8, arrived=8, left=8)
BEGINS = "step 9 of this fit takes longer than 60 s. "


@pytest.mark.parametrize(
    ("beats", "silent_s", "said"),
    [
        ({}, {}, ""),
        ({0: BETWEEN, 1: BETWEEN, 2: BETWEEN}, {}, ""),
        ({0: WAITS, 1: Beat(9, 9, 8, 59.9), 2: BETWEEN}, {0: 0.0}, "Not arrived: worker 2 (c:1; it is between steps,"),
        ({0: WAITS, 1: BETWEEN, 2: WAITS}, {}, "Not arrived: worker 1 (b:1; it is between steps, after step 8)."),
        ({0: WAITS, 1: READS, 2: WAITS}, {}, "worker 1 (b:1; it reads data or computes, in step 9, for 66 s)."),
        ({0: BETWEEN, 1: WAITS, 2: WAITS}, {}, "Not arrived: worker 0 (a:1; it is between steps, after step 8)."),
        ({0: WAITS, 1: WAITS}, {}, "Not arrived: worker 2 (c:1; nothing is heard of it)."),
        ({0: WAITS, 1: WAITS, 2: WAITS}, {2: 70.0}, "worker 2 (c:1; nothing is heard of it since step 9)."),
        ({0: WAITS, 1: READS}, {}, "worker 1 (b:1; it reads data or computes, in step 9, for 66 s), worker 2 (c:1; no"),
        ({0: WAITS, 1: WAITS, 2: WAITS}, {2: 1.0}, "All workers have arrived at its reduction, which does not end:"),
        ({0: READS, 1: READS, 2: READS}, {}, "No worker has arrived at its reduction:"),
    ],
)
def test_description(beats, silent_s, said):
    found = describe_stall(WORKERS, beats, silent_s, stall_s=60, beat_s=1)
    longest = any(beat.waiting_s >= 60 for beat in beats.values())
    assert found.startswith(BEGINS) == longest
    assert said in found


def test_many():
    workers = {rank: f"h{rank}:1" for rank in range(1000)}
    found = describe_stall(workers, {0: WAITS}, {}, stall_s=60, beat_s=1)
    assert found.endswith("worker 8 (h8:1; nothing is heard of it) and 991 more.")
