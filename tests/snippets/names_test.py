"""Every file and folder of the checkout that a page names exists.

    names_test.py ROOT

A name is looked for beside the page (links), from the root, in src/, in src/lockstep/ (`ddp/ddp.h`), in cli/, in tests/ and,
if it is a single file name, anywhere. Checked are: the targets of links; names that end like a source file, a script or a
page; names that begin with a folder of the checkout or with a room. Files of a user's run (`runs/…`, `metrics.jsonl`)
and of LibTorch are not ours.
"""

import pathlib
import re
import subprocess
import sys
import unittest

import pages

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
LINK = re.compile(r"\]\(([^)\s]+)\)")
NAME = re.compile(r"[\w.*{},+-]+(?:/[\w.*{},+-]*)*")
OURS = (".h", ".cpp", ".cu", ".cmake", ".py", ".md", ".cmake.in")
FOREIGN = ("torch/", "ATen/", "c10/", "nlohmann/", "fmt/", "gtest/", "CLI/")
NO_FILES = {"train/loss", "train/lr", "train/rate", "eval/loss",  # tags of TensorBoard
            "train.py"}  # the user's program in Python


def tracked_files():
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard"], capture_output=True, text=True)
    if listed.returncode == 0 and listed.stdout:
        return {pathlib.PurePath(line) for line in listed.stdout.splitlines()}
    return {path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file() and "build" not in path.parts}


FILES = tracked_files()
FILE_NAMES = {path.name for path in FILES}
TOP = {path.parts[0] for path in FILES if len(path.parts) > 1}
ROOMS = {path.parts[2] for path in FILES if path.parts[:2] == ("src", "lockstep") and len(path.parts) > 3}


def expand(name):
    """`a.{h,cpp}` is two names."""
    match = re.search(r"\{([^{}]*)\}", name)
    if not match:
        return [name]
    return [one for part in match[1].split(",") for one in expand(name[:match.start()] + part + name[match.end():])]


def exists(name, page):
    if "/" not in name and "*" not in name and name in FILE_NAMES:
        return True
    places = [ROOT, page.parent, ROOT / "src", ROOT / "src/lockstep", ROOT / "cli", ROOT / "tests"]
    if "*" in name:
        return any(next(place.glob(name), None) for place in places) or bool(next(ROOT.rglob(name), None))
    return any((place / name).exists() for place in places)


def looks_ours(name):
    first = name.partition("/")[0]
    if name in NO_FILES or name.startswith(FOREIGN):
        return False
    return (name.endswith(OURS) and name not in OURS) or ("/" in name and (first in TOP or first in ROOMS) and first != "build")


def names_in(text):
    """Names of files in a page, in code and in prose."""
    for word in re.split(r"[\s\"'()<>\[\];:|=`]+", text):
        word = word.rstrip(".,")
        if NAME.fullmatch(word) and not word.startswith("-"):
            yield from (name for name in expand(word) if looks_ours(name))


def missing(text, page):
    links = [target.partition("#")[0] for target in LINK.findall(text) if "://" not in target]
    missing_links = [target for target in links if target and not (page.parent / target).exists()]
    return sorted(set(missing_links) | {name for name in names_in(text) if not exists(name, page)})


class NamesTest(unittest.TestCase):
    def test_files_named_in_pages_exist(self):
        total, gone = 0, []
        for page in pages.pages(ROOT):
            text = page.read_text()
            total += len(set(names_in(text))) + len(LINK.findall(text))
            gone += [f"{page.relative_to(ROOT)}: there is no {name}" for name in missing(text, page)]
        print(f"{total} names of files")
        self.assertEqual(gone, [], "\n" + "\n".join(gone))

    def test_a_name_that_is_gone_is_found(self):
        page = ROOT / "docs/page.md"
        for text, gone in [("`ddp/no_such.h`", "ddp/no_such.h"), ("[x](no_such.md)", "no_such.md"),
                           ("`tools/no_such`", "tools/no_such"), ("```sh\nexamples/no_such arguments\n```", "examples/no_such"),
                           ("`no_such_test.cpp`", "no_such_test.cpp"), ("`ddp/ddp.{h,txt}`", "ddp/ddp.txt")]:
            self.assertEqual(missing(text, page), [gone], text)
        for text in ["`ddp/ddp.h`", "`ring.bin` of yours", "`runs/mine/metrics.jsonl`", "`tests/oracle/*.py`", "`torch/torch.h`",
                     "see docs/rooms.txt, cli/train"]:
            self.assertEqual(missing(text, page), [], text)


if __name__ == "__main__":
    unittest.main()
