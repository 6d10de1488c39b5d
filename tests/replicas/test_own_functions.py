"""What a `tf.function` of the user's took from one step is not handed out in another.

That programs with such functions are as on one replica: the contract's tables "functions" and "loops".
"""

from tests.processes import run_case


def test_replicas_cannot_send_from_inside_of_one_in_an_eager_step():
    found = run_case("tests.replicas.cases_own_functions:sending")
    assert found["message"].startswith("Replicas that run a step eagerly take turns")
    assert "`@tf.function` off it" in found["message"]
    assert found["is unchanged"]
