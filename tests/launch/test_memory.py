import pytest

from tfscale.launch.memory import count_kills, describe_kill


@pytest.mark.parametrize(
    ("texts", "count"),
    [
        (["nr_free_pages 1\noom_kill 3\nother 2\n"], 3),
        (["oom_kill 3\n", "low 0\noom 5\noom_kill 2\noom_group_kill 7\n"], 5),
        (["oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"], 1),
        (["low 0\n"], 0),
        ([], 0),
    ],
)
def test_count(tmp_path, texts, count):
    files = [tmp_path / str(number) for number in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)
    assert count_kills([*files, tmp_path / "not there"]) == count


def test_here():
    assert count_kills() >= 0


@pytest.mark.parametrize(
    ("num_kills", "peak_bytes", "said"),
    [
        (0, 0, "The kernel has killed nothing for want of memory meanwhile."),
        (0, 1 << 30, "It had 1.0 GiB of memory at most. The kernel has killed nothing"),
        (2, 3 << 29, "It had 1.5 GiB of memory at most. The kernel has killed 2 process(es) for want of memory"),
    ],
)
def test_said(num_kills, peak_bytes, said):
    assert describe_kill(num_kills, peak_bytes).startswith(said)
    assert ("`micro_batch`" in describe_kill(num_kills, peak_bytes)) is (num_kills > 0)
