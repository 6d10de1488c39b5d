"""How does the reference show the examples of a docstring? As code, for which griffe wants the title in the plural."""

import re

import griffe


class ExamplesSection(griffe.Extension):
    """Reads "Example:", as the docstrings have it, as the section that griffe knows."""

    def on_object(self, *, obj, **_):
        """Changes the text that is parsed, and no file."""
        if not obj.is_alias and obj.docstring:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
