"""How is what others wrote shown to a person: on one screen, and without orders to the terminal?"""

import hashlib
import reprlib

_DEPTH = 4


def printable(text: str, most: int = 300) -> str:
    r"""Returns a text in which nothing moves the cursor, changes colours or turns the direction of writing.

    Args:
        text: Anything; what a terminal does not show as it is becomes an escape, except for the end of a line.
        most: Characters of the result.

    Example:
        >>> from tfscale.cluster.shown import printable
        >>> print(printable("\x1b[31mred\r"), printable("a" * 10, most=8))
        \x1b[31mred\r aaaa ...
    """
    # An escape is longer than what it stands for: what is cut off anyway is not looked at.
    shown = text[: most + 1]
    if not shown.isprintable():
        shown = "".join(each if each.isprintable() or each == "\n" else _escape(each) for each in shown)
    return shown if len(shown) <= most else f"{shown[: most - 4]} ..."


def distinct(text: str, most: int = 300) -> str:
    """Returns a text as `printable` does, and another one for each other text: what is too long ends with its hash."""
    shown = printable(text, len(text) * 10 + 10)
    if len(shown) <= most:
        return shown
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]
    return f"{shown[: most - 30]} ..., hash {digest}"


def quoted(value: object, most: int = 200) -> str:
    """Returns `repr` of a value, cut in length, and in depth: of what is nested very deeply `repr` itself fails.

    Example:
        >>> from tfscale.cluster.shown import quoted
        >>> quoted({"index": "0"}), quoted("a" * 9000, most=20)
        ("{'index': '0'}", "'aaaaaaaaaaaaaaa ...")
    """
    if isinstance(value, str):
        return printable(repr(value[: most + 1]), most)
    writer = reprlib.Repr()
    writer.maxlevel = _DEPTH
    writer.maxstring = writer.maxother = writer.maxlong = most
    writer.maxdict = writer.maxlist = writer.maxtuple = 20
    try:
        return printable(writer.repr(value), most)
    except ValueError:
        # An integer of thousands of digits, which Python does not write.
        return f"a value of type {type(value).__name__}"


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode()
