"""The runner of the programs, and three of them with the lines of `tfscale init`; more are in `test_chosen.py`."""

import ast
import json
import subprocess
import sys

import pytest

from tests.programs.program import SCRIPTS, Program, all_programs
from tests.programs.readme_lines import in_float64, with_readme_lines
from tests.repository import ROOT
from tfscale.launch.process_group import process_group

every_program = pytest.mark.parametrize("program", all_programs().values(), ids=lambda program: program.name)


def run_programs(arguments, directory, *, workers=False):
    """What the runner says, in a process group of its own: by program and setting."""
    path = directory / "verdicts.json"
    more = [] if workers else ["--no-workers"]
    command = [sys.executable, "-m", "tests.programs", *more, "--verbose", "--json", str(path), *arguments]
    with process_group(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as runner:
        output, _ = runner.communicate(timeout=600)
    assert path.exists(), output.decode(errors="replace")
    return json.loads(path.read_text())


# A model by functions, one that the chief alone loads on two workers, a script with a strategy of its own.
WITH_INIT = ("guide_train_step", "raydp_447", "own_strategy_guide")


@pytest.fixture(scope="module")
def verdicts_of_init(tmp_path_factory):
    return run_programs([*WITH_INIT, "--init", "--replicas", "3"], tmp_path_factory.mktemp("init"), workers=True)


@pytest.mark.parametrize("name", WITH_INIT)
def test_program_ends_as_it_should_with_the_lines_of_init(verdicts_of_init, name):
    for setting, (word, detail, expected, output) in verdicts_of_init[name].items():
        assert expected, f"{name}, {setting}: {word}: {detail}\n{output}"
    assert len(verdicts_of_init[name]) == (2 if name == "raydp_447" else 1)


ENDS = {
    "equal": "import keras\nBATCH = 8\nvalue = 1.5",
    "refused": "import tfscale\nBATCH = 8\nif 'dp' in globals(): raise tfscale.BatchError('too small')\nvalue = 1.5",
    "different": "BATCH = 8\nvalue = 1.0 + ('dp' in globals())",
    "error": "BATCH = 8\nvalue = 1.0 if 'dp' not in globals() else [][1]",
    "late": "import time\nBATCH = 8\nvalue = 1.0\nif 'dp' in globals(): time.sleep(600)",
    "broken": "BATCH = 8\nvalue = [][1]",
}


def test_runner_tells_the_ends_of_a_program_apart(tmp_path):
    for name, text in ENDS.items():
        (tmp_path / f"{name}.py").write_text(text)
    scripts = [str(tmp_path / f"{name}.py") for name in ENDS]
    found = run_programs([*scripts, "--replicas", "2", "--timeout", "15"], tmp_path)
    assert {name: (word, detail) for name in ENDS for word, detail, _, _ in found[name].values()} == {
        "equal": ("equal", ""),
        "refused": ("refused", "BatchError: too small"),
        "different": ("different", "value by 1"),
        "error": ("error", "IndexError: list index out of range"),
        "late": ("error", "Killed: not finished after 15 s"),
        "broken": ("error", "in plain Keras: IndexError: list index out of range"),
    }


@every_program
def test_program_says_what_it_is_and_knows_nothing_of_tfscale(program):
    assert program.sentence.endswith(".")
    assert isinstance(program.batch, int)
    assert "tfscale" not in program.path.read_text()


def _program(tmp_path, text):
    path = tmp_path / "script.py"
    path.write_text(text)
    return Program(path)


SCRIPT = '''"""What it is."""
import keras

BATCH = 8
RANDOM = True
model = make("float32")
history = model.fit(x)
codes = encoder.predict(x)

class Callback:
    def go(self):
        self.model.evaluate(x)
'''


def test_readme_lines_are_added_and_nothing_else(tmp_path):
    lines = ast.unparse(with_readme_lines(_program(tmp_path, SCRIPT).tree, 3)).splitlines()
    assert [line for line in lines if line] == [
        '"""What it is."""',
        "import tfscale",
        "tfscale.simulate_replicas(3)",
        "import keras",
        "BATCH = 8",
        "dp = tfscale.DataParallel(global_batch=BATCH)",
        "with dp.scope():",
        "    RANDOM = True",
        "    model = make('float32')",
        "history = dp.prepare(model).fit(x)",
        "codes = encoder.predict(x)",
        "with dp.scope():",
        "    class Callback:",
        "        def go(self):",
        "            self.model.evaluate(x)",
    ]


def test_own_strategy_is_handed_over_and_scopes_stay(tmp_path):
    text = (
        "import tensorflow as tf\nBATCH = 8\nstrategy = tf.distribute.MirroredStrategy()\n"
        "with strategy.scope():\n    model = make()\nmodel.fit(x)\n"
    )
    program = _program(tmp_path, text)
    assert program.has_own_strategy
    assert ast.unparse(with_readme_lines(program.tree, 2)).splitlines() == [
        "import tfscale",
        "tfscale.simulate_replicas(2)",
        "import tensorflow as tf",
        "BATCH = 8",
        "dp = tfscale.DataParallel(global_batch=BATCH, devices=tf.distribute.MirroredStrategy(['CPU:0', 'CPU:1']))",
        "strategy = dp.strategy",
        "with strategy.scope():",
        "    model = make()",
        "dp.prepare(model).fit(x)",
    ]
    assert not _program(tmp_path, SCRIPT).has_own_strategy


def test_reports_name_their_thread():
    for program in all_programs().values():
        if program.reported or program.path.parent.name == "reported":
            assert program.sentence.startswith(f"{program.reported}: ")
            assert program.name == program.reported.replace("#", "_")


def test_one_scope_holds_all_that_follows_the_batch(tmp_path):
    text = ast.unparse(with_readme_lines(_program(tmp_path, SCRIPT).tree, 2, one_scope=True))
    assert text.count("with dp.scope():") == 1
    assert "    history = dp.prepare(model).fit(x)" in text


def test_float64_is_said_wherever_float32_was():
    assert ast.unparse(in_float64(ast.parse("x.astype('float32') + tf.float32 + 'a float32'"))) == (
        "x.astype('float64') + tf.float64 + 'a float32'"
    )


def test_marks_are_read(tmp_path):
    program = _program(tmp_path, SCRIPT)
    assert (program.name, program.sentence, program.batch) == ("script", "What it is.", 8)
    assert (program.random, program.workers, program.refused, program.may_be_refused) == (True, False, None, False)


def test_programs_are_found_in_folders_too():
    assert len(all_programs()) == len(list(SCRIPTS.rglob("*.py"))) >= 40
