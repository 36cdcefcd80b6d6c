"""Writes every C++ block of the pages and headers into one file that snippets.cpp includes.

    extract.py ROOT OUT        OUT is written only if it changes

A block is compiled as it stands, in one of these ways:

  fragment    the body of a function. Variables such as `world`, `group`, `net` and `loader` that it does not declare
              are those of prelude.h
  program     a block with `int main(`: a namespace of its own, main() under another name
  tutorial    `diff` blocks: see diffs.py; every step between two programs is compiled as a program

Tags (pages.py) say what else a block needs:

  snippet: after previous     continues the function of the block before it
  snippet: declarations       the body of a namespace, not of a function
  snippet: after #            the block is Python; the C++ is what follows the # of each line

A line that consists of `…` stands for the reader's own statements. The compiler's messages name page and line.
"""

import pathlib
import re
import sys

import diffs
import pages

INCLUDE = re.compile(r"^\s*#include\b")


def cpp_lines(block):
    """The lines of C++ in `block`, or None if it has none."""
    if "after #" in block.values("snippet"):
        return [line.partition("# ")[2] for line in block.lines]
    return block.lines if block.language == "cpp" else None


def body(block, lines):
    text = []
    for number, line in enumerate(lines, block.line):
        if line.strip() in ("…", "// …"):
            line = ";"
        elif "…" in line.partition("//")[0]:
            raise SystemExit(f"{block.path}:{number}: write a whole expression in place of …, which is no C++")
        text.append(line)
    return f'#line {block.line} "{block.path}"\n' + "\n".join(text) + "\n"


def identifier(block):
    return "at_" + re.sub(r"\W", "_", f"{block.path}_{block.line}")


def is_program(lines):
    return any(re.match(r"\s*int main\(", line) for line in lines)


def program(name, path, line, lines):
    """In a namespace of its own, without its includes: snippets.cpp has them."""
    lines = ["" if INCLUDE.match(text) else re.sub(r"\bint main\(", "int program_main(", text) for text in lines]
    return f'namespace {name} {{\n#line {line} "{path}"\n' + "\n".join(lines) + f"\n}}  // namespace {name}\n"


def fragment(block, parts):
    """`parts`: the text of the block, and of those that continue it. Names of prelude.h hide those of lockstep."""
    name = f"prelude::{identifier(block)}"
    inner = "".join(parts)
    if "declarations" not in block.values("snippet"):
        inner = f"void function() {{\n{inner}}}\n"
    return f"namespace {name} {{\nusing namespace lockstep;\n{inner}}}  // namespace {name}\n"


def extract(root):
    """The text to compile, and the blocks that are in it."""
    compiled, texts = [], []
    fragments = []  # each a block and its parts
    for block in pages.all_blocks(root):
        lines = cpp_lines(block)
        if lines is None:
            continue
        compiled.append(block)
        for value in block.values("snippet"):
            if not re.fullmatch(r"after previous|declarations|after #", value):
                raise SystemExit(f"{block.place}: unknown tag 'snippet: {value}'; extract.py lists them")
        if "after previous" in block.values("snippet"):
            if not fragments or fragments[-1][0].path != block.path:
                raise SystemExit(f"{block.place}: there is no block before it to continue")
            fragments[-1][1].append(body(block, lines))
        elif is_program(lines):
            texts.append(program(identifier(block), block.path, block.line, lines))
        else:
            fragments.append((block, [body(block, lines)]))
    texts += [fragment(*each) for each in fragments]
    for step in diffs.steps(root):
        texts.append(program(f"step_{step.block.line}", f"the program after {step.block.place}", 1, step.lines))
    return "\n".join(texts), compiled


def main(root, out):
    text, compiled = extract(pathlib.Path(root))
    text += f"\n// {len(compiled)} blocks:\n" + "".join(f"// {block.place}\n" for block in compiled)
    out = pathlib.Path(out)
    if not out.exists() or out.read_text() != text:
        out.write_text(text)
    print(f"{len(compiled)} C++ blocks: {sum(block.path.suffix == '.md' for block in compiled)} of pages, "
          f"{sum(block.path.suffix == '.h' for block in compiled)} of headers")


if __name__ == "__main__":
    main(*sys.argv[1:])
