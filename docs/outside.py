"""What becomes of links that lead out of `docs/`, to files of the repository? The site gets a copy, as plain text.

A hook of MkDocs, which knows nothing outside of `docs/`. On GitHub the same links lead to the files themselves.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
COPIES = "repository"
LINK = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+[^)\s#]+)(#[^)\s]*)?\)")
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def on_files(files, config):
    """Adds a copy of each file that a page links to."""
    pages = [file for file in files if file.src_uri.endswith(".md")]
    linked = {path for page in pages for path in _outside(page.content_string, page.src_uri).values()}
    for path in sorted(linked):
        if (ROOT / path).is_file():
            files.append(File.generated(config, f"{COPIES}/{path}.txt", content=(ROOT / path).read_text()))
    return files


def on_page_markdown(markdown, page, **_):
    """Leads the links to the copies; a folder has none, and is only named."""
    uri = page.file.src_uri
    outside = _outside(markdown, uri)

    def led(match):
        path = outside.get(match[2])
        if path is None:
            return match[0]
        if not (ROOT / path).is_file():
            return f"{match[1]} (`{path}`)"
        target = posixpath.relpath(f"{COPIES}/{path}.txt", posixpath.dirname(uri) or ".")
        return f"[{match[1]}]({target})"

    parts = FENCE.split(markdown)
    return "".join(part if part.startswith("```") else LINK.sub(led, part) for part in parts)


def _outside(markdown, uri):
    """From each link of a page that leaves `docs/` to the path in the repository."""
    folder = posixpath.join("docs", posixpath.dirname(uri))
    found = {match[2]: posixpath.normpath(posixpath.join(folder, match[2])) for match in LINK.finditer(markdown)}
    return {target: path for target, path in found.items() if not path.startswith("docs/")}
