"""What the documents say exists: links, commands, names."""

import ast
import functools
import pickle
import re
import shlex

import pytest

import tfscale
from tests.processes import run_case
from tests.repository import ROOT, library_files
from tests.test_public_names import MODULES
from tests.training.contract_rows import ROWS, rows_in_float64, shown_cases
from tests.training.together import Failure, run_together
from tfscale import cli
from tfscale.cluster.sources import GROUP
from tfscale.errors import PAGE
from tfscale.sweeps.space import read_space

PAGES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))
DOCUMENTS = (
    "README.md",
    "ARCHITECTURE.md",
    "BUILD_NOTES.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs/command_line.md",
    "examples/README.md",
    "tests/programs/README.md",
    *PAGES,
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
def test_links_to_a_heading_lead_there(document):
    links = [link.partition("#") for link in LINK.findall(FENCE.sub("", _text(document))) if "://" not in link]
    folder = (ROOT / document).parent
    targets = [(folder / path if path else ROOT / document, anchor) for path, _, anchor in links if anchor]
    missing = [(path, anchor) for path, anchor in targets if path.suffix == ".md" and anchor not in _anchors(path)]
    assert missing == []


@every_document
def test_make_commands_are_targets(document):
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))
    named = set(re.findall(r"`make ([a-z][a-z-]*)`", _text(document)))
    for command in _commands(document, "make"):
        named |= {word for word in command[1:] if "=" not in word and not word.startswith("-")}
    assert named - targets == set()


def test_tests_that_the_contract_names_exist():
    named = re.findall(r"`(test_\w+\.py)::(\w+)\[(.+)\]` \|$", _text("docs/contract.md"), re.MULTILINE)
    assert len(named) == len(ROWS) + len(rows_in_float64())
    files = {path.name: path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    for file, function, parameters in named:
        assert f"def {function}(" in files[file]
        assert parameters.removesuffix("-4") in [*shown_cases(), *(row.cases[0] for row in rows_in_float64())]


def test_readme_is_short_and_names_the_main_commands():
    assert len(_text("README.md").splitlines()) <= 150
    assert [name for name in ("make demo", "make test") if name not in _text("README.md")] == []


def test_readme_counts_the_programs_as_their_table_does():
    counts = re.search(r"(\d+) programs: \*\*(\d+) equal\*\*, (\d+) refused\.", _text("docs/programs.md"))
    assert counts is not None
    total, equal, refused = counts.groups()
    readme = " ".join(_text("README.md").split())
    assert f"[{total} whole programs]" in readme
    assert f"{equal} equal, {refused} refused by name" in readme


def test_rows_that_readme_shows_are_those_of_the_contract():
    contract = {tuple(line.split(" | ")[:3]) for line in _text("docs/contract.md").splitlines()}
    table = _text("README.md").partition("## Proof")[2].partition("\n\n[")[0]
    rows = [tuple(line.removesuffix(" |").split(" | ")) for line in table.splitlines() if line.startswith("| ")]
    assert len(rows) > 10
    assert [row for row in rows[1:] if row not in contract] == []


def test_every_page_is_in_the_navigation_once():
    _, _, nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")
    assert sorted(f"docs/{page}" for page in re.findall(r"([\w/-]+\.md)$", nav, re.MULTILINE)) == PAGES


def test_reference_has_every_public_name():
    shown = re.findall(r"^::: tfscale\.([\w.]+)$", "\n".join(map(_text, PAGES)), re.MULTILINE)
    names = {name for name in tfscale.__all__ if not name.endswith(("Error", "__"))}
    names |= {f"{module}.{name}" for module, public in MODULES.items() for name in public}
    assert sorted(shown) == sorted(names)


def test_errors_has_every_class_and_only_messages_that_are_raised():
    page = _text("docs/errors.md")
    assert re.findall(r"^## (\w+)$", page, re.MULTILINE) == [name for name in tfscale.__all__ if name.endswith("Error")]
    messages = [match[1] for match in re.finditer(r"^\| `+ ?(.+?) ?`+ \| ", page, re.MULTILINE)]
    raised = "\n".join(_texts_of(path) for path in library_files())
    assert len(messages) > 25
    assert [message for message in messages if message not in raised] == []


@pytest.mark.parametrize("name", [name for name in tfscale.__all__ if name.endswith("Error")])
def test_messages_end_with_their_place_in_the_documentation(name):
    class Special(getattr(tfscale, name)):
        pass

    place = f"{PAGE}#{name.lower()}"
    assert name.lower() in _anchors(ROOT / PAGE)
    for kind in (getattr(tfscale, name), Special):
        assert str(kind("A rule.\nReceived: 1. A way out.")) == f"A rule.\nReceived: 1. A way out. See {place}."
        assert str(kind("Install it:\n  pip install it")) == f"Install it:\n  pip install it\nSee {place}."
    # What another has said is told without its place; a message of any length ends with its own.
    inner = tfscale.DataError("Rows must be there.")
    assert str(Special(f"A rule ({inner}). A way out.")) == f"A rule (Rows must be there.). A way out. See {place}."
    assert str(pickle.loads(pickle.dumps(getattr(tfscale, name)("A rule.")))) == f"A rule. See {place}."
    assert len(str(Special("a" * 10_000))) == 2000
    assert str(Special("a" * 10_000)).endswith(f"See {place}.")


def test_each_picture_is_there_for_light_and_dark_pages():
    shown = re.findall(r"\((pictures/\S+)-(light|dark)\.svg#only-(\w+)\)", _text("docs/why.md"))
    assert shown
    assert [(theme, shows) for _, theme, shows in shown if theme != shows] == []
    files = [ROOT / "docs" / f"{picture}-{theme}.svg" for picture, theme, _ in shown]
    assert [file for file in files if not file.is_file()] == []
    assert len({(picture, theme) for picture, theme, _ in shown}) == 2 * len({picture for picture, _, _ in shown})


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


def _blocks(language):
    found = [each for document in DOCUMENTS for each in FENCE.findall((ROOT / document).read_text())]
    return [block for named, block in found if named == language]


BLOCKS = _blocks("python")


def test_space_that_a_page_shows_is_read(tmp_path):
    blocks = _blocks("yaml")
    assert blocks
    for block in blocks:
        (tmp_path / "space.yaml").write_text(block)
        assert read_space(str(tmp_path / "space.yaml"))


def test_entry_points_that_a_page_shows_are_those_that_are_read():
    blocks = _blocks("toml")
    shown = re.findall(r'entry-points\."(.+)"\]', "".join(blocks))
    assert (shown, len(blocks)) == ([GROUP], 1)


def test_what_is_shown_of_a_command_has_the_words_of_its_code():
    """The heads of tables and what stands before a colon; of Python that cannot run alone, the names."""
    said = "\n".join(_texts_of(path) for path in library_files())
    for block in _blocks("text"):
        if "import tfscale" in block:
            compile(block, "document", "exec")
            assert set(re.findall(r"\btfscale\.([A-Za-z_]\w*)", block)) <= {*tfscale.__all__}
        else:
            heads = [line for line in block.splitlines() if re.match(r"(run|replicas)  ", line)]
            named = [name for line in heads for name in re.split(r" {2,}", line)]
            named += re.findall(r"^([a-z][a-z ]+): ", block, re.MULTILINE)
            assert [name for name in named if name not in said] == []


@pytest.fixture(scope="module")
def printed():
    """What each block prints; all on the simulated replicas of one process, but for what changes the process."""
    alone = [block for block in BLOCKS if "deterministic=True" in block]
    results = run_together([("tests.cases_docs:run", (block,)) for block in BLOCKS if block not in alone])
    together = {args[0]: result for (_, args), result in results.items()}
    return together | {block: run_case("tests.cases_docs:run", args=(block,)) for block in alone}


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.splitlines()[0][:40])
def test_python_blocks_run_as_they_stand(printed, block):
    assert not isinstance(printed[block], Failure), printed[block]


def test_table_that_a_page_shows_is_what_is_printed(printed):
    [block] = [block for block in BLOCKS if "print(dp)" in block]
    # On half of the replicas: the same rows, with other numbers.
    shown = [line.split("  ")[0] for line in _text("docs/how-to/batch.md").partition(block)[2].splitlines()[3:]]
    names = [line.split("  ")[0] for line in printed[block].splitlines() if "  " in line]
    assert [name for name in names if name and not name.startswith("sequential") and name not in shown] == []


def _text(document):
    return (ROOT / document).read_text()


def _texts_of(path):
    """Every constant text of a file, as Python puts it together."""
    nodes = ast.walk(ast.parse((ROOT / path).read_text()))
    return "\n".join(node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))


@functools.cache
def _anchors(path):
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", path.read_text()), re.MULTILINE)
    return {_anchor(heading) for heading in headings}


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
