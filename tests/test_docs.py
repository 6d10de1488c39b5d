"""What the documents say exists: links, commands, names."""

import re
import shlex

import pytest

import tfscale
from tests.repository import ROOT
from tests.training.contract_rows import ROWS, rows_in_float64, shown_cases
from tests.training.together import Failure, run_together
from tfscale import cli

DOCUMENTS = (
    "README.md",
    "ARCHITECTURE.md",
    "BUILD_NOTES.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "docs/command_line.md",
    "examples/README.md",
    "tests/programs/README.md",
)

# [text](target), without the optional title.
LINK = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]+)")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHELLS = {"bash", "console", "sh", "shell"}

every_document = pytest.mark.parametrize("document", DOCUMENTS)


@every_document
def test_relative_links_lead_somewhere(document):
    links = LINK.findall(FENCE.sub("", _text(document)))
    paths = [link.partition("#")[0] for link in links if "://" not in link]
    folder = (ROOT / document).parent
    assert [path for path in paths if not (folder / path).exists()] == []


@every_document
def test_links_within_a_document_lead_to_a_heading(document):
    text = FENCE.sub("", _text(document))
    anchors = {_anchor(heading) for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}
    links = {link[1:] for link in LINK.findall(text) if link.startswith("#")}
    assert links - anchors == set()


@every_document
def test_make_commands_are_targets(document):
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))
    named = set(re.findall(r"`make ([a-z][a-z-]*)`", _text(document)))
    for command in _commands(document, "make"):
        named |= {word for word in command[1:] if "=" not in word and not word.startswith("-")}
    assert named - targets == set()


def test_tests_that_the_contract_names_exist():
    named = re.findall(r"`(test_\w+\.py)::(\w+)\[(.+)\]` \|$", _text("README.md"), re.MULTILINE)
    assert len(named) == len(ROWS) + len(rows_in_float64())
    files = {path.name: path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    for file, function, parameters in named:
        assert f"def {function}(" in files[file]
        assert parameters.removesuffix("-4") in [*shown_cases(), *(row.cases[0] for row in rows_in_float64())]


def test_readme_names_the_main_commands():
    assert [name for name in ("make demo", "make test") if name not in _text("README.md")] == []


@every_document
def test_tfscale_commands_parse(document):
    for command in _commands(document, "tfscale"):
        if "--help" not in command and "--version" not in command:
            cli.make_parser().parse_args(command[1:])


@every_document
def test_python_blocks_compile_and_use_public_names(document):
    for language, block in FENCE.findall(_text(document)):
        if language == "python":
            compile(block, document, "exec")
            assert set(re.findall(r"\btfscale\.([A-Za-z_]\w*)", block)) <= {*tfscale.__all__, *tfscale._MODULES}


BLOCKS = [
    block
    for document in DOCUMENTS
    for language, block in FENCE.findall((ROOT / document).read_text())
    if language == "python"
]


@pytest.fixture(scope="module")
def printed():
    """What each block prints; all on the simulated replicas of one process."""
    results = run_together([("tests.cases_docs:run", (block,)) for block in BLOCKS])
    return {args[0]: result for (_, args), result in results.items()}


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.splitlines()[0][:40])
def test_python_blocks_run_as_they_stand(printed, block):
    assert not isinstance(printed[block], Failure), printed[block]


def test_table_that_the_readme_shows_is_what_is_printed(printed):
    [block] = [block for block in BLOCKS if "print(dp)" in block]
    # On half of the replicas: the same rows, with other numbers.
    shown = [line.split("  ")[0] for line in _text("README.md").partition(block)[2].splitlines()[3:]]
    names = [line.split("  ")[0] for line in printed[block].splitlines() if "  " in line]
    assert [name for name in names if name and not name.startswith("sequential") and name not in shown] == []


def _text(document):
    return (ROOT / document).read_text()


def _commands(document, program):
    """Yields the words of every command line of `program` in the document's shell blocks."""
    for language, block in FENCE.findall(_text(document)):
        for line in block.replace("\\\n", " ").splitlines() if language in SHELLS else ():
            words = shlex.split(line.strip().removeprefix("$ "), comments=True)
            if words[:1] == [program]:
                yield words


def _anchor(heading):
    """Returns the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
