"""The diffs that pages show, applied.

Tags of a `diff` block:

  diff: PROGRAM               it changes the file PROGRAM
  diff: previous              it changes what the diff before it has made
  gives: PROGRAM              and its result is that file

A diff has no line numbers. Its lines without a mark and those with `-` are found in the program, one after another
and exactly once; a line `…` separates changes of different places.
"""

import dataclasses

import pages


@dataclasses.dataclass
class Step:
    block: pages.Block
    lines: list  # of the program after the diff
    gives: str  # a file; empty: none
    changed: int  # lines that the diff adds or replaces; a blank line is no change


def hunks(block):
    hunk = []
    for line in [*block.lines, "…"]:
        if line.strip() == "…":
            if hunk:
                yield hunk
            hunk = []
        else:
            hunk.append((line[:1] or " ", line[1:]))


def apply(block, lines):
    for hunk in hunks(block):
        for mark, text in hunk:
            if mark not in " +-":
                raise SystemExit(f"{block.place}: a line of a diff begins with a space, + or -: {mark}{text}")
        old = [text for mark, text in hunk if mark != "+"]
        new = [text for mark, text in hunk if mark != "-"]
        places = [i for i in range(len(lines) - len(old) + 1) if lines[i:i + len(old)] == old]
        if len(places) != 1:
            raise SystemExit(f"{block.place}: the program has these lines {len(places)} times, not once:\n" + "\n".join(old))
        lines = lines[:places[0]] + new + lines[places[0] + len(old):]
    return lines


def steps(root):
    """Every diff of the pages, in order, with the program that it makes."""
    for path in pages.pages(root):
        lines = None
        for block in pages.blocks_of_page(path.read_text(), path.relative_to(root)):
            if block.language != "diff":
                continue
            source = (block.values("diff") or [""])[0]
            if source not in ("", "previous"):
                lines = (root / source).read_text().splitlines()
            if not source or lines is None:
                raise SystemExit(f"{block.place}: a diff needs the tag 'diff: PROGRAM' or, after another, 'diff: previous'")
            lines = apply(block, lines)
            gives = (block.values("gives") or [""])[0]
            yield Step(block, lines, gives, sum(line[:1] == "+" and bool(line[1:].strip()) for line in block.lines))


def differences(root):
    """One sentence for every diff whose result is not the file that it promises."""
    for step in steps(root):
        if step.gives and (root / step.gives).read_text().splitlines() != step.lines:
            yield f"{step.block.place}: the diffs do not give {step.gives}"
