import pytest
import tensorflow as tf

from tfscale.replicas.deterministic import vector_instructions, what_bits_depend_on

XEON = (
    "processor\t: 0\nmodel name\t: a CPU\nflags\t\t: fpu sse4_2 avx avx2 avx512f avx512_vnni\nbugs\t\t: avx512_bf16\n"
)


@pytest.mark.parametrize(
    ("cpuinfo", "expected"),
    [
        ("", []),
        ("flags : fpu", []),
        (XEON, ["avx512_vnni"]),
        (XEON.replace(" avx512_vnni", ""), ["avx512f"]),
        ("flags\t: avx avx2\n\nflags\t: avx512f\n", ["avx2"]),
        ("Features\t: fp asimd sve\n", ["sve"]),
    ],
)
def test_instructions_of_a_processor(cpuinfo, expected):
    assert vector_instructions(cpuinfo) == expected


@pytest.mark.parametrize(("value", "shown"), [(None, "default"), ("0", "0")])
def test_what_is_here(monkeypatch, value, shown):
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS", raising=False)
    if value is not None:
        monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", value)
    found = what_bits_depend_on(tf.distribute.get_strategy())
    assert found["onednn"] == shown
    assert found["tensorflow"] == tf.__version__
    assert found["devices"].startswith("CPU (")
