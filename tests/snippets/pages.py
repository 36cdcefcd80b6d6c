"""The blocks of the pages (README.md, CONTRIBUTING.md, docs/*.md) and the code in comments of headers.

Words: a *block* of a page lies between two fences (```). Its language follows the first fence, and lines
`<!-- … -->` directly above it are its *tags*. A block of a header is a run of comment lines that are indented by
three spaces or more; it is code if one of its lines ends like a statement, and text if it is a list or a table.
"""

import dataclasses
import pathlib
import re

FENCE = re.compile(r"^\s*```\s*(\S*)\s*$")
TAG = re.compile(r"^\s*<!--\s*(.*?)\s*-->\s*$")
COMMENT = re.compile(r"^\s*//[/!]?(.*)$")
LIST = re.compile(r"^\s*(-|\d+\.) ")
TABLE = re.compile(r"\S {3,}[^\s/]")


@dataclasses.dataclass
class Block:
    path: pathlib.PurePath  # from the root of the checkout
    line: int  # of the first line inside
    language: str
    lines: list
    tags: list = dataclasses.field(default_factory=list)

    @property
    def place(self):
        return f"{self.path}:{self.line}"

    def values(self, name):
        """What the tags `name: value` say."""
        return [tag.partition(":")[2].strip() for tag in self.tags if tag.partition(":")[0] == name]


def pages(root):
    return [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").glob("*.md"))]


def headers(root):
    return sorted(path for folder in ("src", "models", "cli") for path in (root / folder).rglob("*.h"))


def blocks_of_page(text, path):
    blocks, tags, block = [], [], None
    for number, line in enumerate(text.splitlines(), 1):
        fence = FENCE.match(line)
        if block is not None:
            if fence:
                blocks.append(block)
                block = None
            else:
                block.lines.append(line)
        elif fence:
            block = Block(path, number + 1, fence[1], [], tags)
            tags = []
        else:
            tag = TAG.match(line)
            tags = [*tags, tag[1]] if tag else []
    if block is not None:
        raise SystemExit(f"{path}:{block.line - 1}: this fence is not closed")
    return blocks


def blocks_of_header(text, path):
    """Those that are code."""
    blocks, block = [], None
    for number, line in enumerate(text.splitlines(), 1):
        comment = COMMENT.match(line)
        if comment and comment[1].startswith("   "):
            if block is None:
                block = Block(path, number, "cpp", [])
                blocks.append(block)
            block.lines.append(comment[1][3:])
        elif block is not None and comment and not comment[1].strip():
            block.lines.append("")  # a paragraph inside the block, or its end
        else:
            block = None
    for block in blocks:
        while not block.lines[-1]:
            block.lines.pop()
    return [block for block in blocks if is_code(block)]


def is_code(block):
    if LIST.match(block.lines[0]) or block.lines[0].startswith('{"'):
        return False
    code = [line.partition(" //")[0].rstrip() for line in block.lines]
    return any(line.endswith(";") and not TABLE.search(line) for line in code)


def all_blocks(root):
    blocks = []
    for path in pages(root):
        blocks += blocks_of_page(path.read_text(), path.relative_to(root))
    for path in headers(root):
        blocks += blocks_of_header(path.read_text(), path.relative_to(root))
    return blocks
