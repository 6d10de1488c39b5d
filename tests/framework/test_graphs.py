from tests.processes import run_case


def test_without_graph_optimizer():
    found = run_case("tests.framework.cases_graphs:operations")
    # The square root of a constant is one as well, after Grappler.
    assert "Sqrt" not in found["before"]
    assert found["without"].count("Sqrt") == 2
    assert found["afterwards"] == found["before"]
    assert found["values"] == [3.0, 3.0, 3.0]
