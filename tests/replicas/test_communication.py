import pytest

from tfscale import DeviceError
from tfscale.replicas.communication import choose_communication, choose_devices


@pytest.mark.parametrize(
    ("devices", "options", "expected"),
    [
        (["GPU"] * 8, {}, "nccl"),
        (["GPU"] * 8, {"num_workers": 4}, "nccl"),
        (["GPU"], {"num_workers": 2}, "nccl"),
        (["GPU"], {}, "none"),
        (["CPU"], {}, "none"),
        (["CPU"], {"num_workers": 2}, "ring"),
        (["CPU"] * 4, {}, "ring"),
        (["GPU"] * 2, {"platform": "win32"}, "ring"),
        (["GPU"] * 2, {"platform": "darwin"}, "ring"),
        (["GPU"] * 2, {"virtual_gpus": True}, "ring"),
        (["GPU"] * 2, {"requested": "ring"}, "ring"),
        (["GPU"] * 2, {"requested": "nccl"}, "nccl"),
        (["CPU"] * 2, {"requested": "ring"}, "ring"),
    ],
)
def test_implementation_and_reason(devices, options, expected):
    choice = choose_communication(devices, **options)
    assert choice.implementation == expected
    assert choice.reason


@pytest.mark.parametrize(
    ("devices", "options", "said"),
    [
        ([], {}, "all be GPUs or all be CPUs"),
        (["CPU", "GPU"], {}, "all be GPUs or all be CPUs"),
        (["TPU"], {}, "all be GPUs or all be CPUs"),
        (["CPU"] * 2, {"requested": "nccl"}, "no GPU"),
        (["GPU"] * 2, {"requested": "nccl", "platform": "win32"}, "win32"),
        (["GPU"] * 2, {"requested": "nccl", "virtual_gpus": True}, "share a physical one"),
    ],
)
def test_refused_implementations(devices, options, said):
    with pytest.raises(DeviceError, match=said) as caught:
        choose_communication(devices, **options)
    assert "Received: " in str(caught.value)


@pytest.mark.parametrize(
    ("requested", "available", "expected"),
    [
        ("auto", ["CPU:0"], ["CPU:0"]),
        ("auto", ["CPU:0", "CPU:1"], ["CPU:0", "CPU:1"]),
        ("auto", ["CPU:0", "GPU:0", "GPU:1"], ["GPU:0", "GPU:1"]),
        (1, ["CPU:0", "GPU:0", "GPU:1"], ["GPU:0"]),
        (2, ["CPU:0", "CPU:1", "CPU:2"], ["CPU:0", "CPU:1"]),
        ("GPU:1", ["CPU:0", "GPU:0", "GPU:1"], ["GPU:1"]),
        (["GPU:1", "GPU:0"], ["CPU:0", "GPU:0", "GPU:1"], ["GPU:1", "GPU:0"]),
        (["/gpu:0", "/device:GPU:1"], ["GPU:0", "GPU:1"], ["GPU:0", "GPU:1"]),
        (("cpu:0",), ["CPU:0", "GPU:0"], ["CPU:0"]),
    ],
)
def test_devices(requested, available, expected):
    assert choose_devices(requested, available) == expected


@pytest.mark.parametrize(
    ("requested", "said"),
    [
        (0, "between 1 and"),
        (-1, "between 1 and"),
        (3, r"simulate_replicas\(3\)"),
        ([], "empty"),
        ("GPU:0", "unknown"),
        (["CPU:0", "CPU:7"], "CPU:7"),
        (["CPU:0", "CPU:0"], "repeated"),
        (["CPU:0", "/cpu:0"], "repeated"),
        (True, "Received"),
        (1.5, "Received"),
        (None, "Received"),
        ("", "Received"),
    ],
)
def test_refused_devices(requested, said):
    with pytest.raises(DeviceError, match=said) as caught:
        choose_devices(requested, ["CPU:0", "CPU:1"])
    assert "Received: " in str(caught.value)
