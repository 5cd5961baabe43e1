"""What the site needs beside docs/: pages from the root of the repository, the list of decisions, the navigation, and
links that lead out of docs/."""

import logging
import os
import re

from mkdocs.structure.files import File

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
DOCS = os.path.join(ROOT, "docs")

#: Pages from the root of the repository, by their path there.
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}

#: What shows recordings of a terminal, installed by make docs.
PLAYER = os.path.join(os.path.dirname(__file__), "node_modules", "asciinema-player", "dist", "bundle")

START_PLAYERS = """document.querySelectorAll(".recording").forEach((at) => AsciinemaPlayer.create(at.dataset.cast, at, {
  fit: "width", poster: "npt:0:03", idleTimeLimit: 2 }));
"""

LINK = re.compile(r"(?<!!)\[(?P<label>(?:[^][]|\[[^]]*\])*)\]\((?P<target>[^()\s]+)\)")

CODE = re.compile(r"`[^`]+`")

log = logging.getLogger("mkdocs.hooks.site")


def on_config(config):
    """The navigation: the groups of "Read on" in README.md, with the pages that each row names."""
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as f:
        rows = f.read().partition("## Read on")[2].splitlines()
    config.nav = [{"Regroup": "index.md"}]
    for row in rows:
        cells = [cell.strip() for cell in row.split(" | ", 1)]
        links = LINK.findall(cells[-1]) if len(cells) == 2 else []
        pages = [{_title(label): _page(target)} for label, target in links if _page(target)]
        if pages:
            config.nav.append({_title(cells[0].strip("| ")): pages})
    if os.environ.get("MIKE_DOCS_VERSION"):  # one of several versions: the page has a menu of them
        config.extra["version"] = {"provider": "mike"}
    config.extra_css.append("assets/asciinema-player.css")
    config.extra_javascript += ["assets/asciinema-player.min.js", "assets/recordings.js"]
    config.nav.append({"More": [{"Contributing": "contributing.md"}, {"Changes": "changelog.md"}, {"Repository": config.extra["repository"]}]})
    return config


def _title(text):
    return text[:1].upper() + text[1:]


def _page(target):
    """The page of the site for a link of README.md; None for what is no page."""
    target = target.partition("#")[0]
    if target == "docs/adr/":
        return "adr/index.md"
    return target[len("docs/") :] if target.startswith("docs/") and target.endswith(".md") else None


def on_files(files, config):
    """Adds the pages that are not in docs/: those of the root, and the list of decisions."""
    for path, page in PAGES.items():
        with open(os.path.join(ROOT, path), encoding="utf-8") as f:
            files.append(File.generated(config, page, content=f.read()))
    for name in ("asciinema-player.css", "asciinema-player.min.js"):
        with open(os.path.join(PLAYER, name), encoding="utf-8") as f:
            files.append(File.generated(config, "assets/" + name, content=f.read()))
    files.append(File.generated(config, "assets/recordings.js", content=START_PLAYERS))
    decisions = ["# Decisions\n\nEach says what was decided, and why.\n"]
    for name in sorted(os.listdir(os.path.join(DOCS, "adr"))):
        with open(os.path.join(DOCS, "adr", name), encoding="utf-8") as f:
            decisions.append(f"- [{f.readline().strip('# ').strip()}]({name})")
    files.append(File.generated(config, "adr/index.md", content="\n".join(decisions) + "\n"))
    return files


def on_page_markdown(markdown, page, config, files):
    """Makes links that lead out of docs/ lead to the site's page or to the repository. A dead one is a warning."""
    source = {to: path for path, to in PAGES.items()}.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    repository = config.extra["repository"]

    def resolved(match):
        target, _, anchor = match["target"].partition("#")
        if "://" in target or not target:
            return match[0]
        path = os.path.normpath(os.path.join(os.path.dirname(source), target))
        if not os.path.exists(os.path.join(ROOT, path)):
            log.warning("%s: the link to %s is dead", source, match["target"])
            return match[0]
        to = PAGES.get(path)
        if path.startswith("docs/"):
            to = path[len("docs/") :] + ("/index.md" if os.path.isdir(os.path.join(ROOT, path)) else "")
        if to is None:
            kind = "tree" if os.path.isdir(os.path.join(ROOT, path)) else "blob"
            return f"[{match['label']}]({repository}/{kind}/main/{path}{'#' + anchor if anchor else ''})"
        if to.endswith(".cast"):  # in the repository a link, here the recording itself
            up = "../" * page.url.count("/")
            return f'<span class="recording" data-cast="{up}{to}" style="display: block"></span>'
        to = os.path.relpath(to, os.path.dirname(page.file.src_uri))
        return f"[{match['label']}]({to}{'#' + anchor if anchor else ''})"

    lines, fenced = [], False
    for line in markdown.splitlines(keepends=True):
        fenced ^= line.lstrip().startswith("```")
        if line.startswith("|"):  # what is code ends at its backticks here, and in the repository at a bar
            line = CODE.sub(lambda code: code[0].replace("\\|", "|"), line)
        lines.append(line if fenced else LINK.sub(resolved, line))
    return "".join(lines)
