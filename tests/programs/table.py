"""The verdicts as a table, for the screen and for the README."""

from collections import Counter
from collections.abc import Mapping, Sequence

from tests.programs.judgement import Verdict
from tests.programs.program import Program

BEGIN, END = "<!-- programs:begin -->", "<!-- programs:end -->"
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


def for_readme(rows: Rows) -> str:
    """How many programs, how many of them equal, and every one with its worst verdict, in Markdown."""
    worst = {program.name: _worst(verdicts) for program, verdicts in rows}
    counts = Counter(verdict.word for verdict in worst.values())
    others = ", ".join(f"{counts[word]} {word}" for word in ("refused", "different", "error") if counts[word])
    lines = [
        f"{len(rows)} programs: **{counts['equal']} equal**{', ' if others else ''}{others}.",
        "",
        "| program | what it is | verdict |",
        "|---|---|---|",
    ]
    for program, _ in rows:
        verdict = worst[program.name]
        name = f" (`{verdict.detail.partition(':')[0]}`)" if verdict.word in ("refused", "error") else ""
        bold = "**" if verdict.word in ("different", "error") else ""
        lines.append(f"| {program.name} | {program.sentence} | {bold}{verdict.word}{bold}{name} |")
    return "\n".join(lines)


def between_markers(text: str, table: str) -> str:
    """`text` with `table` between its two markers.

    Raises:
        ValueError: When the markers are not there, once each and in order.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end) or BEGIN in rest or END in after:
        raise ValueError(f"The file must have the lines {BEGIN} and {END}, once each, in this order.")
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def _worst(verdicts: Mapping[str, Verdict]) -> Verdict:
    return max(verdicts.values(), key=lambda verdict: ("equal", "refused", "error", "different").index(verdict.word))
