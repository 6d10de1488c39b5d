"""The verdicts as a table, for the screen and for docs/programs.md."""

from collections import Counter
from collections.abc import Mapping, Sequence

from tests.programs.judgement import Verdict
from tests.programs.program import Program

_PAGES = {
    "keras": "https://github.com/keras-team/keras/issues/",
    "ray": "https://github.com/ray-project/ray/issues/",
    "raydp": "https://github.com/ray-project/raydp/pull/",
    "tensorflow": "https://github.com/tensorflow/tensorflow/issues/",
}
# Row by row: the program, and its verdict by column.
Rows = Sequence[tuple[Program, Mapping[str, Verdict]]]


def for_screen(rows: Rows) -> str:
    """One line per program; what is not simply equal is said in full."""
    columns = list(dict.fromkeys(column for _, verdicts in rows for column in verdicts))
    width = max(len("program"), *(len(program.name) for program, _ in rows))
    widths = [max(len(column), len("different")) for column in columns]
    lines = [f"{'program':{width}}  " + "  ".join(f"{c:{w}}" for c, w in zip(columns, widths, strict=True))]
    for program, verdicts in rows:
        words = [verdicts[c].word if c in verdicts else "-" for c in columns]
        details = dict.fromkeys(verdict.detail for verdict in verdicts.values() if verdict.detail)
        cells = "  ".join(f"{word:{w}}" for word, w in zip(words, widths, strict=True))
        lines.append(f"{program.name:{width}}  {cells}  {'; '.join(details)[:160]}".rstrip())
    return "\n".join(lines)


def for_readme(rows: Rows, order: Sequence[Program] = (), earlier: str = "") -> str:
    """How many programs, how many of them equal, and every one with its worst verdict, in Markdown.

    Args:
        rows: Of the programs that were run.
        order: All programs that there are.
        earlier: A text with the rows of those that were run before, which stay.
    """
    lines = {
        _shown(program): f"| {_shown(program)} | {program.sentence} | {_in_markdown(verdicts)} |"
        for program, verdicts in rows
    }
    return _table("programs", ["program", "what it is", "verdict"], lines, order, earlier)


def reported_for_readme(rows: Rows, order: Sequence[Program] = (), earlier: str = "") -> str:
    """The same for programs that were made of public threads: each with a link to its thread."""
    lines = {}
    for program, verdicts in rows:
        what = program.sentence.removeprefix(f"{program.reported}: ").rstrip(".")
        lines[_shown(program)] = f"| {_shown(program)} | {what} | {_in_markdown(verdicts)} |"
    return _table("reports", ["thread", "what was reported", "here"], lines, order, earlier)


def _shown(program: Program) -> str:
    """What the first column has."""
    where, _, number = (program.reported or "").partition("#")
    return f"[{program.reported}]({_PAGES[where]}{number})" if where else program.name


def _table(what: str, columns: Sequence[str], lines: Mapping[str, str], order: Sequence[Program], earlier: str) -> str:
    kept = {line.split(" | ")[0].removeprefix("| "): line for line in earlier.splitlines() if line.startswith("| ")}
    found = {**kept, **lines}
    names = [name for name in map(_shown, order) if name in found] if order else list(lines)
    words = Counter(found[name].split(" | ")[-1].split()[0].strip("*") for name in names)
    others = ", ".join(f"{words[word]} {word}" for word in ("refused", "different", "error") if words[word])
    summary = f"{len(names)} {what}: **{words['equal']} equal**{', ' if others else ''}{others}."
    head = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    return "\n".join([summary, "", *head, *(found[name] for name in names)])


def between_markers(text: str, name: str, table: str) -> str:
    """`text` with `table` between the two markers of this name.

    Raises:
        ValueError: When the markers are not there, once each and in order.
    """
    first, last = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    before, begin, rest = text.partition(first)
    _, end, after = rest.partition(last)
    if not (begin and end) or first in rest or last in after:
        raise ValueError(f"The file must have the lines {first} and {last}, once each, in this order.")
    return f"{before}{first}\n{table}\n{last}{after}"


def _in_markdown(verdicts: Mapping[str, Verdict]) -> str:
    verdict = _worst(verdicts)
    name = f" (`{verdict.detail.partition(':')[0]}`)" if verdict.word in ("refused", "error") else ""
    bold = "**" if verdict.word in ("different", "error") else ""
    return f"{bold}{verdict.word}{bold}{name}"


def _worst(verdicts: Mapping[str, Verdict]) -> Verdict:
    return max(verdicts.values(), key=lambda verdict: ("equal", "refused", "error", "different").index(verdict.word))
