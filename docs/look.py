"""How does the built site look in a browser? Every page, wide and narrow, light and dark.

Nothing is wider than the window, and no picture is broken. `make look` does it with Chromium (`apt-get install
chromium`), and leaves two pictures in build/looks.
"""

import functools
import http.server
import json
import re
import shutil
import subprocess
import sys
import threading
import urllib.parse
from pathlib import Path

WIDTHS = (1280, 375)
THEMES = ("light", "dark")
# Each page in a frame of the given width, one after the other; what was found stands in the page then.
_HARNESS = """<!doctype html><title>looks</title><body><script>
const asked = JSON.parse(decodeURIComponent(location.hash.slice(1)));
localStorage.setItem("/.__palette", JSON.stringify({index: asked.theme === "dark" ? 1 : 0,
  color: {scheme: asked.theme === "dark" ? "slate" : "default", primary: "indigo", accent: "indigo", media: ""}}));
async function look(page) {
  const frame = document.createElement("iframe");
  frame.style = `width:${asked.width}px;height:900px;border:0`;
  frame.src = page;
  document.body.append(frame);
  await new Promise(done => frame.onload = done);
  await new Promise(done => setTimeout(done, 100));
  const inside = frame.contentDocument, root = inside.scrollingElement;
  const seen = [...inside.images].filter(each => each.getClientRects().length);
  const found = {page, wider: root.scrollWidth - root.clientWidth, dark: inside.body.dataset.mdColorScheme === "slate",
    pictures: seen.length, broken: seen.filter(each => !each.naturalWidth).map(each => each.getAttribute("src"))};
  frame.remove();
  return found;
}
(async () => {
  const all = [];
  for (const page of asked.pages) all.push(await look(page));
  document.body.innerHTML = `<pre id="found">${encodeURIComponent(JSON.stringify(all))}</pre>`;
})();
</script>"""


def problems(found, width, theme):
    """Returns what is wrong with what the browser saw of the pages, a line each.

    Args:
        found: Of each page: how much it is wider than its window, whether it is dark, how many pictures it shows, and
            which of them are broken.
        width: Of the window.
        theme: That was asked for.
    """
    where = f"{width} px wide, {theme}"
    wrong = [
        f"{each['page']}, {where}: {each['wider']} px wider than the window" for each in found if each["wider"] > 0
    ]
    wrong += [f"{each['page']}, {where}: broken: {', '.join(each['broken'])}" for each in found if each["broken"]]
    return wrong + [f"{each['page']}, {where}: is not" for each in found if each["dark"] != (theme == "dark")]


def main(site, looks):
    """Returns the exit status."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        print("The site was not looked at: there is no Chromium (`apt-get install chromium`).")
        return 1
    pages = sorted(str(path.relative_to(site)) for path in site.rglob("*.html") if path.name != "404.html")
    looks.mkdir(parents=True, exist_ok=True)
    wrong, pictures = [], 0
    with _served(site) as server:
        base = f"http://127.0.0.1:{server.server_port}"
        for width in WIDTHS:
            for theme in THEMES:
                asked = urllib.parse.quote(json.dumps({"pages": pages, "width": width, "theme": theme}))
                dom = _chromium(browser, "--virtual-time-budget=600000", "--dump-dom", f"{base}/__look__.html#{asked}")
                found = json.loads(urllib.parse.unquote(re.search(r'id="found">([^<]*)<', dom)[1]))
                assert [each["page"] for each in found] == pages
                wrong += problems(found, width, theme)
                pictures += sum(each["pictures"] for each in found)
        for page in ("index.html", "why.html"):
            picture = looks / page.replace(".html", ".png")
            _chromium(browser, "--window-size=1280,2000", f"--screenshot={picture}", f"{base}/{page}")
    print(*wrong, sep="\n" if wrong else "")
    seen = f"{len(pages)} pages, {pictures} pictures, at {' and '.join(map(str, WIDTHS))} px, {' and '.join(THEMES)}"
    print(f"{seen}: {len(wrong)} wrong; two are in {looks}")
    return int(bool(wrong))


def _served(site):
    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self):
            if self.path.partition("?")[0] != "/__look__.html":
                return super().do_GET()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            return self.wfile.write(_HARNESS.encode())

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def _chromium(browser, *arguments):
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run")
    done = subprocess.run([browser, *flags, *arguments], capture_output=True, text=True, timeout=300, check=True)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
