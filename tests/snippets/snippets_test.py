"""No C++ of the pages is left out of what is compiled, and the diffs of the tutorial give its programs.

    snippets_test.py ROOT EXTRACTED

Counts by grep, not by the parser that extracts.
"""

import pathlib
import re
import subprocess
import sys
import unittest

import diffs
import extract
import pages

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
EXTRACTED = pathlib.Path(sys.argv.pop(1))
# In a header: a comment that is indented as code is and ends as a statement does. Tables and lists are text.
STATEMENT = r"^ *//[/!]? {3,}[^-0-9 {][^/]*; *(//.*)?$"
GAP = re.compile(r"//[/!]? +\S.*\S {3,}[^\s/]")


def grep(*arguments):
    done = subprocess.run(["grep", "-nE", *map(str, arguments)], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.splitlines()


class SnippetsTest(unittest.TestCase):
    def setUp(self):
        _, self.compiled = extract.extract(ROOT)

    def test_every_fence_of_cpp_is_extracted(self):
        fences = grep("^ *``` *(cpp|c\\+\\+|cc|cxx|C)", "/dev/null", "README.md", "CONTRIBUTING.md",
                      *sorted((ROOT / "docs").glob("*.md")))
        columns = grep("^<!-- snippet: after # -->", "/dev/null", *sorted((ROOT / "docs").glob("*.md")))
        of_pages = [block for block in self.compiled if block.path.suffix == ".md"]
        self.assertEqual(len(of_pages), len(fences) + len(columns))

    def test_every_statement_in_a_header_comment_is_extracted(self):
        found = grep("-r", "--include=*.h", STATEMENT, "src", "models", "cli")
        self.assertTrue(found)
        lines = {(str(block.path), block.line + i) for block in self.compiled for i in range(len(block.lines))}
        missed = []
        for hit in found:
            path, number, text = hit.split(":", 2)
            if (path, int(number)) not in lines and not GAP.search(text) and "(" in text:
                missed.append(hit)
        self.assertEqual(missed, [])

    def test_what_is_compiled_is_what_was_extracted(self):
        text, _ = extract.extract(ROOT)
        self.assertTrue(EXTRACTED.read_text().startswith(text), "build the target lockstep_snippets again")
        listed = re.findall(r"^// (\S+:\d+)$", EXTRACTED.read_text(), re.MULTILINE)
        self.assertEqual(listed, [block.place for block in self.compiled])
        for block in self.compiled:
            self.assertIn(f'#line {block.line} "{block.path}"', text)
        print(f"{len(listed)} C++ blocks compiled, {len(list(diffs.steps(ROOT)))} programs made by diffs")

    def test_the_tutorials_diffs_give_its_programs(self):
        self.assertEqual(list(diffs.differences(ROOT)), [])
        steps = list(diffs.steps(ROOT))
        made = {step.gives for step in steps} | {step.block.values("diff")[0] for step in steps}
        programs = {str(path.relative_to(ROOT)) for path in (ROOT / "examples/tutorial").glob("*.cpp")}
        self.assertLessEqual(programs, made, "every program of the tutorial is shown by its diffs")

    def test_programs_that_pages_show_are_the_files_that_they_name(self):
        for path in pages.pages(ROOT):
            for block in pages.blocks_of_page(path.read_text(), path.relative_to(ROOT)):
                for name in block.values("file"):
                    first, *lines = (ROOT / name).read_text().splitlines()
                    self.assertTrue(first.startswith("// "), "the first line of the file is a comment, which pages leave out")
                    self.assertEqual(block.lines, lines, f"{block.place} is not {name}")

    def test_six_lines_make_one_process_many_ranks(self):
        count = 0
        for step in diffs.steps(ROOT):
            count += step.changed
            if step.gives.endswith("n_ranks.cpp"):
                break
        self.assertEqual(count, 6)

    def test_a_header_block_is_code_or_text(self):
        def found(*lines):
            return pages.blocks_of_header("\n".join(lines), pathlib.PurePath("a.h"))

        self.assertEqual(len(found("// What.", "//", "//   int a = 1;", "//", "//   int b = 2;", "#pragma once")), 1)
        self.assertEqual(found("//   name   what it is;", "//   other  more"), [])
        self.assertEqual(found("//   - a list;"), [])
        self.assertEqual(found('//   {"kind":"start"};'), [])

    def test_an_ellipsis_stands_for_statements_only(self):
        block = pages.Block(pathlib.PurePath("a.md"), 3, "cpp", ["while (true) {", "  …", "}"])
        self.assertIn("\n;\n", extract.body(block, block.lines))
        block.lines[1] = "  f(…);"
        with self.assertRaises(SystemExit):
            extract.body(block, block.lines)

    def test_a_diff_that_does_not_fit_is_an_error(self):
        block = pages.Block(pathlib.PurePath("a.md"), 1, "diff", [" a", "-b", "+c"])
        self.assertEqual(diffs.apply(block, ["a", "b", "d"]), ["a", "c", "d"])
        for lines in (["a", "x"], ["a", "b", "a", "b"]):
            with self.assertRaises(SystemExit):
                diffs.apply(block, lines)


if __name__ == "__main__":
    unittest.main()
