import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfscale import ClusterError
from tfscale.cluster.addresses import add_ports, derive_port
from tfscale.cluster.host_list import expand_hosts


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("n1", "n1"),
        ("n1,n2", "n1 n2"),
        ("n2,n1,n2", "n2 n1 n2"),
        ("n[08-11]", "n08 n09 n10 n11"),
        ("n[8-11]", "n8 n9 n10 n11"),
        ("n[098-101]", "n098 n099 n100 n101"),
        ("n[3]", "n3"),
        ("n[007]", "n007"),
        ("n[1-2,7,9-10]", "n1 n2 n7 n9 n10"),
        ("n[2,1]", "n2 n1"),
        ("n[08-11],a[1-2]b[3-4]", "n08 n09 n10 n11 a1b3 a1b4 a2b3 a2b4"),
        ("rack[0-1]-node[01-02].example", "rack0-node01.example rack0-node02.example rack1-node01.example "
         "rack1-node02.example"),
        ("[1-2]", "1 2"),
        ("n[1-2]:2222", "n1:2222 n2:2222"),
        ("[::1]:2222,[fe80::2]", "[::1]:2222 [fe80::2]"),
        ("10.0.0.[1-2]", "10.0.0.1 10.0.0.2"),
        # As SkyPilot and dstack write them, and files.
        ("a\nb", "a b"),
        ("a\r\nb\n", "a b"),
        ("\na\n\nn[1-2],b\n", "a n1 n2 b"),
    ],
)  # fmt: skip
def test_expansion(text, hosts):
    assert expand_hosts(text, "HOSTS") == tuple(hosts.split())


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "names with commas"),
        (",", "names with commas"),
        ("a,", "names with commas"),
        (",a", "names with commas"),
        ("a,,b", "names with commas"),
        ("a b", "names with commas"),
        ("\n", "names with commas"),
        ("a,\nb", "names with commas"),
        ("a\n,b", "names with commas"),
        ("n[1\n2]", "names with commas"),
        ("a\x0bb", "names with commas"),
        ("n[1-2", "names with commas"),
        ("n1-2]", "names with commas"),
        ("n[[1]]", "names with commas"),
        ("n[]", "rising ranges"),
        ("n[1,]", "rising ranges"),
        ("n[1-]", "rising ranges"),
        ("n[-1]", "rising ranges"),
        ("n[1-2-3]", "rising ranges"),
        ("n[a-b]", "rising ranges"),
        ("n[\u0663]", "rising ranges"),
        ("n[2-1]", "rising ranges"),
        ("n[1-1000000000]", "rising ranges"),
        ("n[0-10000]", "at most 10000"),
        ("n[0-999999999]", "at most 10000"),
        ("n[0-100][0-100]", "at most 10000"),
        ("[0-9999],a", "at most 10000"),
    ],
)
def test_malformed(text, rule):
    with pytest.raises(ClusterError) as caught:
        expand_hosts(text, "HOSTS")
    assert rule in str(caught.value)
    assert "`HOSTS`" in str(caught.value)


@given(
    st.from_regex(r"[a-z][a-z0-9-]{0,5}", fullmatch=True), st.integers(0, 999), st.integers(0, 40), st.integers(1, 5)
)
def test_a_range_is_the_list_of_its_numbers(prefix, low, more, width):
    expected = tuple(f"{prefix}{number:0{width}d}" for number in range(low, low + more + 1))
    assert expand_hosts(f"{prefix}[{low:0{width}d}-{low + more:0{width}d}]", "HOSTS") == expected


@pytest.mark.parametrize(
    ("hosts", "addresses"),
    [
        (["a", "b"], ("a:5", "b:5")),
        (["a", "b", "a", "a"], ("a:5", "b:5", "a:6", "a:7")),
        (["a:9", "a"], ("a:9", "a:5")),
        (["[::1]", "[::1]:9"], ("[::1]:5", "[::1]:9")),
    ],
)
def test_ports(hosts, addresses):
    assert add_ports(hosts, 5) == addresses


@given(st.text())
def test_derived_port_is_out_of_the_way(job):
    assert 61_000 <= derive_port(job) <= 64_999
    assert derive_port(job) == derive_port(job)


def test_neighbouring_jobs_have_room_for_16_workers_each():
    ports = [derive_port(str(job)) for job in range(7000, 7200)]
    assert min(abs(a - b) for i, a in enumerate(ports) for b in ports[:i]) == 16
