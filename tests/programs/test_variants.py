"""A program gets the arguments that it is asked to have, and no others."""

import ast

import pytest

from tests.programs.outcome import Arguments
from tests.programs.variants import with_arguments

ARGUMENTS = Arguments(compiled="steps_per_execution=3", optimizers="clipnorm=0.1")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("m.compile('adam', 'mse')", "m.compile(keras.optimizers.Adam(clipnorm=0.1), 'mse', steps_per_execution=3)"),
        ("m.compile(optimizer=o)", "m.compile(optimizer=o, steps_per_execution=3)"),
        ("m.compile(steps_per_execution=2)", "m.compile(steps_per_execution=2)"),
        ("m.compile(**options)", "m.compile(**options)"),
        ("super().compile(optimizer=o)", "super().compile(optimizer=o)"),
        ("o = keras.optimizers.AdamW(0.1)", "o = keras.optimizers.AdamW(0.1, clipnorm=0.1)"),
        ("o = optimizers.SGD(clipnorm=1.0)", "o = optimizers.SGD(clipnorm=1.0)"),
        ("pattern = re.compile('adam')", "pattern = re.compile('adam')"),
    ],
)
def test_arguments_are_added(written, expected):
    assert ast.unparse(with_arguments(ast.parse(written), ARGUMENTS)) == expected


def test_a_program_without_them_stays_as_it_is():
    tree = ast.parse("model.compile('adam')")
    assert with_arguments(tree, Arguments()) is tree
