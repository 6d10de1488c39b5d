"""Is the built site whole, and does it need no network? `make docs` asks, after MkDocs.

Every link leads to a file and, with a `#`, to a place in it; every picture, script and style is one of the site's own.
"""

import html.parser
import sys
import urllib.parse
from pathlib import Path

# What a page needs in order to be shown; a link (`a`) may lead out, since nobody has to follow it.
_NEEDED = {"img": "src", "script": "src", "link": "href", "source": "src", "iframe": "src"}
# Links of a page to others that are not loaded: who made it, what comes next.
_NOT_LOADED = {"canonical", "prev", "next", "alternate", "edit"}


class _Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.places, self.links, self.needed, self.without_text = set(), [], [], []

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.places |= {found[name] for name in ("id", "name") if found.get(name)}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        target = found.get(_NEEDED.get(tag, ""))
        if target and not _NOT_LOADED & set((found.get("rel") or "").split()):
            self.needed.append(target)
        if tag == "img" and not found.get("alt"):
            self.without_text.append(found.get("src"))


def problems(site):
    """Returns what is wrong with the pages below a folder, a line each.

    Args:
        site: Path of the folder.
    """
    site = site.resolve()
    pages = {path: _read(path) for path in sorted(site.rglob("*.html"))}
    found = [] if pages else [f"{site}: there is no page"]
    for path, page in pages.items():
        here = path.relative_to(site)
        found += [f"{here}: a picture without a text in its place: {source}" for source in page.without_text]
        found += [f"{here}: needs the network: {target}" for target in page.needed if _leads_out(target)]
        for target in [*page.links, *page.needed]:
            # What is not found is shown at any address: its links begin at the root.
            if not _leads_out(target) and path.name != "404.html":
                found += [f"{here}: {problem}" for problem in _followed(site, path, target, pages)]
    return found


def _read(path):
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def _leads_out(target):
    parts = urllib.parse.urlsplit(target)
    return bool(parts.scheme or parts.netloc)


def _followed(site, path, target, pages):
    parts = urllib.parse.urlsplit(target)
    name = urllib.parse.unquote(parts.path)
    led = (path.parent / name).resolve() if name else path
    if led.is_dir():
        led = led / "index.html"
    if not led.is_file() or not led.is_relative_to(site):
        return [f"leads nowhere: {target}"]
    page = pages.get(site / led.relative_to(site) if name else led)
    place = urllib.parse.unquote(parts.fragment)
    if place and page is not None and place not in page.places:
        return [f"there is no such place: {target}"]
    return []


if __name__ == "__main__":
    wrong = problems(Path(sys.argv[1]))
    print(*wrong, sep="\n" if wrong else "")
    print(f"{len(list(Path(sys.argv[1]).rglob('*.html')))} pages, {len(wrong)} of their links and parts wrong")
    sys.exit(bool(wrong))
