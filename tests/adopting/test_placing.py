"""`tfscale init`: over all of the corpus, and over scripts in other shapes."""

import ast
import json
import subprocess
from pathlib import Path

import pytest

from tests.programs.program import all_programs
from tfscale import ScriptError, cli
from tfscale.adopting import one_worker
from tfscale.adopting.placing import adopt
from tfscale.adopting.source import Source, read_source
from tfscale.recovery import chief_only

PROGRAMS = all_programs()


def adopted(tmp_path, text, **arguments):
    path = tmp_path / "script.py"
    path.write_text(text)
    return adopt(read_source(path), **arguments)


def test_all_of_the_corpus_has_a_place_and_the_diffs_apply(tmp_path):
    patch, expected = [], {}
    for name, program in PROGRAMS.items():
        source = read_source(program.path)
        adoption = adopt(source)
        assert adoption.not_placed == [], name
        assert "tfscale.DataParallel(global_batch=BATCH" in adoption.text, name
        ast.parse(adoption.text)
        (tmp_path / f"{name}.py").write_text(source.text)
        patch.append(adoption.diff().replace(program.path.as_posix().lstrip("/"), f"{name}.py"))
        expected[name] = adoption.text
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input="".join(patch), text=True, check=True, timeout=60)
    assert {name: (tmp_path / f"{name}.py").read_text() for name in PROGRAMS} == expected


def test_without_the_lines_it_is_the_script_again():
    for name, program in PROGRAMS.items():
        source = read_source(program.path)
        tree = ast.parse(adopt(source).text)
        if not program.has_own_strategy:
            assert ast.unparse(_Without().visit(tree)) == ast.unparse(source.tree()), name


class _Without(ast.NodeTransformer):
    """Takes tfscale's lines out again."""

    def visit_Import(self, node):
        return None if node.names[0].name == "tfscale" else node

    def visit_Assign(self, node):
        self.generic_visit(node)
        return None if ast.unparse(node).startswith("dp = tfscale") else node

    def visit_With(self, node):
        self.generic_visit(node)
        return node.body if ast.unparse(node.items[0]) == "dp.scope()" else node

    def visit_Call(self, node):
        self.generic_visit(node)
        return node.args[0] if ast.unparse(node.func) == "dp.prepare" else node


MAIN = '''import argparse
import keras

def build():
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("adam", "mse")
    return model

def main():
    args = argparse.ArgumentParser().parse_args()
    model = build()
    text = """one
two"""
    model.fit(x, y, batch_size=args.batch)

if __name__ == "__main__":
    main()
'''


def test_a_main_function(tmp_path):
    text = adopted(tmp_path, MAIN, simulate=2).text
    assert "import keras\nimport tfscale\ntfscale.simulate_replicas(2)\n" in text
    assert (
        "    args = argparse.ArgumentParser().parse_args()\n"
        "    dp = tfscale.DataParallel(global_batch=args.batch)\n"
        "    with dp.scope():\n"
        "        model = build()\n"
        '    text = """one\ntwo"""\n'
        "    dp.prepare(model).fit(x, y, batch_size=args.batch)\n"
    ) in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("import keras\nm = keras.Model()\nm.fit(x, y, batch_size=8)\nm.fit(x, y, batch_size=4)\n", "it may be 8"),
        ("import keras\nm = keras.Model()\nm.fit(make_data())\n", "give --global-batch"),
        ("import keras\nm = keras.Model()\nm.fit(x, y, batch_size=int('8'))\n", "give the batch a name first"),
        ("import keras\nm = keras.Model()\nB = 8\nm.fit(x, y, batch_size=B)\n", "it must stand above line 2"),
        ("import keras\nBATCH = 8\n", "there is none"),
    ],
)
def test_what_cannot_be_placed_is_said_and_nothing_is_written(tmp_path, capsys, text, shown):
    path = tmp_path / "script.py"
    path.write_text(text)
    assert cli.main(["init", str(path), "--write", "--json"]) == 1
    facts = json.loads(capsys.readouterr().out)
    assert shown in " ".join(facts["not_placed"])
    assert (facts["written"], facts["diff"], path.read_text()) == (False, "", text)


def test_write(tmp_path, capsys):
    path = tmp_path / "script.py"
    path.write_bytes(b"import keras\r\nm = keras.Model()\r\nm.fit(x, y)\r\n")
    assert cli.main(["init", str(path)]) == 0
    assert "+import tfscale" in capsys.readouterr().out
    assert cli.main(["init", str(path), "--write"]) == 0
    # Nothing is promised that is not there: a script seldom has the two functions.
    said = capsys.readouterr().err
    assert "two functions in a file beside it: build()" in said
    assert "Lines are counted" not in said
    assert path.read_bytes().startswith(
        b"import keras\r\nimport tfscale\r\ndp = tfscale.DataParallel(global_batch=32)\r\nwith dp.scope():\r\n    m ="
    )
    assert cli.main(["init", str(path), "--write"]) == 0
    assert "imports tfscale already" in capsys.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == ["script.py"]


def test_remarks_on_what_was_written_say_which_lines_they_count(tmp_path, capsys):
    path = tmp_path / "script.py"
    path.write_text("import keras\nm = keras.Model()\nm.fit(x, y, callbacks=[keras.callbacks.CSVLogger('a.csv')])\n")
    assert cli.main(["init", str(path)]) == 0
    assert "Lines are counted" not in capsys.readouterr().err
    assert cli.main(["init", str(path), "--write"]) == 0
    assert "line 3: on several workers" in (said := capsys.readouterr().err)
    assert "Lines are counted as they were before." in said


def test_what_is_a_string_or_somebody_elses_stays(tmp_path):
    text = adopted(
        tmp_path,
        "import keras\nfrom sklearn.preprocessing import StandardScaler\nscaler = StandardScaler()\nx = scaler.fit(x)\n"
        'model = keras.Model(name="""a\nb""")\nmodel.fit(x, y, batch_size=4)\n',
    ).text
    assert (
        'x = scaler.fit(x)\nwith dp.scope():\n    model = keras.Model(name="""a\nb""")\ndp.prepare(model).fit' in text
    )


@pytest.mark.parametrize(("name", "content"), [("a.py", b"def ("), ("a.ipynb", b"{}"), ("a.py", b"\xff\xfe")])
def test_what_is_no_script_is_refused(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ScriptError, match="Received: "):
        adopt(read_source(tmp_path / name))
    with pytest.raises(ScriptError, match="Received: "):
        read_source(tmp_path / "missing.py")


def test_a_batch_for_each_replica_stays_one(tmp_path):
    text = (
        "import tensorflow as tf\nstrategy = tf.distribute.MirroredStrategy()\nB = 64 * strategy.num_replicas_in_sync\n"
        "with strategy.scope():\n    model = make()\nmodel.fit(x, y, batch_size=B)\n"
    )
    assert "dp = tfscale.DataParallel(per_replica_batch=64)\nstrategy = dp.strategy\n" in adopted(tmp_path, text).text


def test_source_keeps_its_encoding(tmp_path):
    path = tmp_path / "a.py"
    path.write_bytes("# coding: latin-1\nname = 'ü'\n".encode("latin-1"))
    source = read_source(path)
    source.write(source.text)
    assert path.read_bytes() == "# coding: latin-1\nname = 'ü'\n".encode("latin-1")
    assert isinstance(source, Source)


CHIEF = """import json, os
import keras

{rank}
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(x, y, batch_size=8)
if {test}:
    restored = keras.models.load_model("a.keras")
    print(restored.{method}(x))
model.fit(x, y, batch_size=8)
"""
BY_TF_CONFIG = 'is_first = json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 0'


@pytest.mark.parametrize(
    ("rank", "test"),
    [
        (BY_TF_CONFIG, "is_first"),
        (f"{BY_TF_CONFIG}\nshows = is_first and verbose", "shows"),
        ('number = int(os.environ.get("SLURM_PROCID", 0))', "number == 0"),
        ("import horovod.keras as hvd", "hvd.rank() == 0"),
        ("from cluster import is_chief", "is_chief()"),
        ("rank = int(arguments.rank)", "not rank"),
        ("task_type, task_id = cluster.task_type, cluster.task_id", "_is_first(task_type, task_id)"),
    ],
)
def test_what_one_worker_alone_makes_is_not_under_the_scope(tmp_path, rank, test):
    # To make variables under the scope takes all workers.
    found = adopted(tmp_path, CHIEF.format(rank=rank, test=test, method="predict"))
    assert not found.not_placed
    assert (
        f'if {test}:\n    restored = keras.models.load_model("a.keras")\n    print(restored.predict(x))\n' in found.text
    )
    assert [each for each in found.remarks if "one worker" in each and "scope" in each]


@pytest.mark.parametrize(
    ("rank", "test"), [("rank = 4", "rank > 2"), ('kind = os.environ["KIND"]', "kind"), ("ranking = f(x)", "ranking")]
)
def test_what_is_no_rank_is_under_the_scope(tmp_path, rank, test):
    found = adopted(tmp_path, CHIEF.format(rank=rank, test=test, method="predict"))
    assert '    with dp.scope():\n        restored = keras.models.load_model("a.keras")\n' in found.text
    assert not [each for each in found.remarks if "one worker" in each]


@pytest.mark.parametrize("method", ["fit", "evaluate", "train_on_batch"])
def test_what_one_worker_alone_trains_is_not_placed(tmp_path, method):
    found = adopted(tmp_path, CHIEF.format(rank=BY_TF_CONFIG, test="is_first", method=method))
    assert found.not_placed == [
        f"line 10: `restored.{method}` on one worker alone; it takes all workers: take it out of the `if` of line 8"
    ]


def test_what_one_worker_alone_predicts_by_a_model_of_all_is_not_placed(tmp_path):
    text = CHIEF.format(rank=BY_TF_CONFIG, test="is_first", method="predict").replace(
        "restored.predict", "model.predict"
    )
    assert adopted(tmp_path, text).not_placed == [
        "line 10: `model.predict` on one worker alone; it takes all workers: take it out of the `if` of line 8"
    ]


def test_what_one_worker_alone_makes_among_what_all_make_is_not_placed(tmp_path):
    text = (
        f"import json, os\nimport keras\n{BY_TF_CONFIG}\nfor _ in range(2):\n    model = keras.Model()\n"
        "    if is_first:\n        other = keras.models.load_model('a')\nmodel.fit(x, y, batch_size=8)\n"
    )
    assert adopted(tmp_path, text).not_placed == [
        "line 6: what one worker alone makes, among what all make; move that `if` below it"
    ]


AGENT = """import keras
import tensorflow as tf
BATCH = 8
class Agent(keras.Model):
    def __init__(self):
        super().__init__()
        self.head = keras.layers.Dense(3)
    def call(self, x):
        return self.head(x)
    def _gradients(self, x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self(x))
        return tape.gradient(loss, self.trainable_variables)
    def learn(self, x):
        self.optimizer.apply(self._gradients(x))
    def train_step(self, x):
        self.learn(x)
    def grow(self):
        self.more = keras.layers.Dense(3)
agent = Agent()
agent.compile("sgd")
agent.{built}
for x in data:
    agent.{step}(x)
"""


@pytest.mark.parametrize("step", ["learn", "train_step"])
def test_a_loop_that_trains_by_a_method_of_a_model_is_outside_of_the_scope(tmp_path, step):
    found = adopted(tmp_path, AGENT.format(built="build((None, 4))", step=step))
    assert found.text.endswith(f"    agent.build((None, 4))\nfor x in data:\n    agent.{step}(x)\n")
    assert not found.not_placed


def test_a_method_of_a_model_that_makes_layers_is_under_the_scope(tmp_path):
    found = adopted(tmp_path, AGENT.format(built="grow()", step="learn"))
    assert "    agent.grow()\nfor x in data:\n" in found.text


def test_a_loop_that_calls_the_train_step_of_keras_is_outside_of_the_scope(tmp_path):
    text = (
        "import keras\nmodel = keras.Sequential([keras.layers.Dense(1)])\nmodel.compile('sgd', 'mse')\n"
        "for batch in data.batch(8):\n    logs = model.train_step(batch)\n"
    )
    found = adopted(tmp_path, text, global_batch=8)
    assert found.text.endswith("'mse')\nfor batch in data.batch(8):\n    logs = model.train_step(batch)\n")
    assert not found.not_placed


def test_callbacks_that_write_files_are_those_of_the_library():
    # One that writes to a server has no path.
    known = {each.__name__ for each in chief_only._WRITE_FILES} - {"RemoteMonitor"}
    assert {*one_worker._WRITE_FILES} == {*known, "BackupAndRestore"}


def test_files_that_all_workers_would_write_are_named():
    text = """import keras
from keras.callbacks import CSVLogger
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(x, y, batch_size=64, callbacks=[keras.callbacks.ModelCheckpoint("a.keras"), CSVLogger("a.csv"), Own("a")])
"""
    remarks = adopt(Source(Path("a.py"), text)).remarks
    assert [each.split("`")[1] for each in remarks] == ["ModelCheckpoint", "CSVLogger"]
    assert all("line 5" in each and "callbacks=dp.callbacks([...])" in each for each in remarks)
