"""Runs the commands of the pages.

    commands_test.py ROOT BUILD

The commands of a page run in order in one empty folder, with `lockstep` on the PATH and BUILD as build/release and
build/dev. The language of a block decides:

  sh          commands, one per line (`\\` continues one). Each must end with exit code 0
  python      a program; runs in the same folder
  json        must parse, as a whole or line by line
  cmake       its lines are in the project that tests/installed_consumer builds
  text        no commands: layouts, messages. A transcript, which has commands, needs the tag `output`
  cpp, diff   extract.py
  none        sh if it begins with a command, text if it has the tag `output`; else an error

Tags of a block (pages.py):

  needs: WHAT, why         it is not run: what it needs, one of NEEDS, and anything a reader of the page's source should know
  needs: WHAT: PATTERN     the same for the commands in which the regular expression is found
  run: COMMAND             a preparation that readers do not see
  replace: OLD -> NEW      in the commands before they run: smaller sizes, other data
"""

import ast
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

import pages

ROOT, BUILD = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
del sys.argv[1:3]

NEEDS = {
    "network": "downloads",
    "GPU": "a GPU",
    "hosts": "several hosts",
    "PyTorch": "torch in Python",
    "MPI": "mpirun",
    "root": "installs packages",
    "minutes": "builds, trains or tests for minutes; CI and other tests run it",
    "checkout": "changes the checkout",
}
COMMAND = re.compile(r"^\s*(\$ )?(lockstep|make|cmake|ctest|python3?|torchrun|mpirun|srun|pip|apt(-get)?|git|tools/\S+|"
                     r"build/\S+|benchmarks/\S+)\s")
HANDLED_ELSEWHERE = ("cpp", "diff")
SUB_VERBS = {"train": ["gpt", "resnet", "mlp", "transformer"], "data": ["inspect", "tokenize", "audit", "fetch"],
             "ckpt": ["inspect", "verify", "diff", "export", "import"], "bench": ["comm", "data"],
             "run": [], "top": [], "doctor": [], "report": [], "generate": [], "version": []}
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
# Options of other programs that pages speak of.
FOREIGN = {"--build", "--preset", "--target", "--install", "--prefix",  # cmake
           "--logdir",  # tensorboard
           "--shm-size",  # docker
           "--kill-on-bad-exit",  # srun
           "--bind-to",  # mpirun
           "--against",  # tools/measure_build
           "--only",  # tools/gpu_check
           # torchrun
           "--no-python", "--standalone", "--rdzv-id", "--rdzv-endpoint", "--rdzv-backend", "--tee", "--log-dir",
           "--local-ranks-filter"}


def without_comment(line):
    """`line` up to a # that begins a word outside quotes."""
    quote = ""
    for i, letter in enumerate(line):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter == "#" and (i == 0 or line[i - 1].isspace()):
            return line[:i].rstrip()
    return line.rstrip()


def commands_of(block):
    text = "\n".join(without_comment(line) for line in block.lines).replace("\\\n", " ")
    return [line.strip() for line in text.splitlines() if line.strip()]


def language_of(block):
    if block.language:
        return block.language
    if "output" in block.tags:
        return "text"
    return "sh" if block.lines and COMMAND.match(block.lines[0]) else "not given"


def problem_of(block):
    """What is wrong with the block itself, before anything runs; empty if nothing is."""
    kind = language_of(block)
    for tag in block.tags:
        name = tag.partition(":")[0]
        if name not in ("needs", "run", "replace", "output", "snippet", "diff", "gives", "file"):
            return f"unknown tag: {tag}"
    for value in block.values("needs"):
        if need_of(value) not in NEEDS:
            return f"unknown need: {value}; one of {', '.join(NEEDS)}"
    if kind in ("sh", "python", "json", "cmake", *HANDLED_ELSEWHERE):
        return ""
    if kind != "text":
        return f"its language is {kind}; one of sh, text, python, json, cmake, cpp, diff"
    lines = [line.strip() for line in block.lines if COMMAND.match(line)]
    if lines and "output" not in block.tags:
        return f"text with a command ({lines[0]}): make it sh, or tag it <!-- output -->"
    return ""


def need_of(value):
    return re.split("[,:]", value)[0].strip()


def split_needs(block):
    """Commands to run, and (command, need) for the others."""
    run, tagged = commands_of(block), []
    for value in block.values("needs"):
        pattern = value.partition(":")[2].strip()
        chosen = [command for command in run if re.search(pattern, command)]
        if not chosen:
            raise AssertionError(f"{block.place}: the tag 'needs: {value}' fits no command")
        tagged += [(command, need_of(value)) for command in chosen]
        run = [command for command in run if command not in chosen]
    return run, tagged


def replaced(block, commands):
    for value in block.values("replace"):
        old, _, new = (part.strip() for part in value.partition("->"))
        if not any(old in command for command in commands):
            raise AssertionError(f"{block.place}: the tag 'replace: {value}' fits no command")
        commands = [command.replace(old, new) for command in commands]
    return commands


def options_of(text):
    """(verb, option) of every option that a page names. The verb is empty where the page does not say it."""
    for span in re.findall(r"`([^`\n]+)`", text):
        words = span.split()
        verb = words[1] if words[0].endswith("lockstep") and len(words) > 1 and words[1] in SUB_VERBS else ""
        if verb == "run":  # what follows the program is the program's
            span = re.split(r" (?:\./|build/|PROGRAM)", span)[0]
        if verb or span.startswith("-"):
            for option in OPTION.findall(span):
                yield verb, option


class Page:
    """The folder in which a page's commands run."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        (self.folder / "build").mkdir()
        for preset in ("release", "dev"):
            (self.folder / "build" / preset).symlink_to(BUILD)
        for name in ("tools", "examples", "docs", "benchmarks"):
            (self.folder / name).symlink_to(ROOT / name)
        self.environment = {**os.environ, "PATH": f"{BUILD / 'bin'}:{os.environ['PATH']}",
                            "XDG_CACHE_HOME": str(self.folder / "cache"), "PYTHONDONTWRITEBYTECODE": "1",
                            "LOCKSTEP_TRAIN_RANKS": "2", "CUDA_VISIBLE_DEVICES": ""}

    def run(self, command):
        """(exit code, output)"""
        try:
            done = subprocess.run(command, cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                                  timeout=240)
        except subprocess.TimeoutExpired as slow:
            return 124, (slow.stdout or b"").decode(errors="replace")
        return done.returncode, done.stdout

    def shell(self, command):
        return self.run(["bash", "-euo", "pipefail", "-c", command])


class CommandsTest(unittest.TestCase):
    def check(self, block, page, counts):
        language = language_of(block)
        for preparation in block.values("run"):
            self.expect_success(block, page, preparation)
        if language == "json":
            try:
                json.loads("\n".join(block.lines))
            except ValueError:
                for line in block.lines:
                    json.loads(line)
        elif language == "cmake":
            known = (ROOT / "tests/installed_consumer/consumer/CMakeLists.txt").read_text().replace("consumer", "my_program")
            for line in commands_of(block):
                self.assertIn(line, known, f"{block.place}: no test builds a project with this line")
        elif language == "python":
            ast.parse("\n".join(block.lines))
            if not block.values("needs"):
                self.expect_success(block, page, "a Python block", [sys.executable, "-c", "\n".join(block.lines)])
                counts["run"] += 1
            for value in block.values("needs"):
                counts[need_of(value)] += 1
        elif language == "sh":
            commands, tagged = split_needs(block)
            for command in replaced(block, commands):
                self.expect_success(block, page, command)
                counts["run"] += 1
            for _, need in tagged:
                counts[need] += 1

    def expect_success(self, block, page, command, arguments=None):
        begin = time.monotonic()
        code, output = page.run(arguments) if arguments else page.shell(command)
        print(f"{time.monotonic() - begin:5.1f} s  {block.place}  {command}", flush=True)
        self.assertEqual(code, 0, f"{block.place}: {command}: exit code {code}\n{output}")

    def test_commands_of_pages_run(self):
        counts = collections.Counter()
        for path in pages.pages(ROOT):
            with tempfile.TemporaryDirectory(prefix="lockstep-page-") as folder, self.subTest(page=path.name):
                page = Page(folder)
                for block in pages.blocks_of_page(path.read_text(), path.relative_to(ROOT)):
                    self.assertEqual(problem_of(block), "", block.place)
                    self.check(block, page, counts)
        print(f"{counts['run']} commands run; not run: "
              + ", ".join(f"{counts[need]} need {need} ({NEEDS[need]})" for need in NEEDS if counts[need]))

    def test_options_that_pages_name_exist(self):
        known = {}
        with tempfile.TemporaryDirectory() as folder:
            page = Page(folder)
            for verb, subs in SUB_VERBS.items():
                texts = [page.run(["lockstep", verb, *sub, "--help"]) for sub in [[], *([sub] for sub in subs)]]
                self.assertEqual([code for code, _ in texts], [0] * len(texts), verb)
                text = re.sub(r"--\[no-\]([\w-]+)", r"--\1 --no-\1", "".join(text for _, text in texts))
                known[verb] = {"--help", *OPTION.findall(text)}
        known[""] = FOREIGN.union(*known.values())
        count, unknown = 0, []
        for path in pages.pages(ROOT):
            text = path.read_text()
            named = set(options_of(text))
            count += len(named)
            unknown += [f"{path.relative_to(ROOT)}: lockstep {verb} has no {option}" for verb, option in sorted(named)
                        if option not in known[verb]]
        print(f"{count} options")
        self.assertEqual(unknown, [], "\n" + "\n".join(unknown))

    def test_n_ranks_train_as_one_process_does(self):
        """docs/tutorial.md says so: the losses differ in their last digits only."""
        def losses(*command):
            with tempfile.TemporaryDirectory() as folder:
                code, output = Page(folder).run(command)
            self.assertEqual(code, 0, output)
            return [float(loss) for loss in re.findall(r"loss over all samples ([0-9.]+)", output)]

        one = losses(f"{BUILD}/bin/lockstep", "run", "-n", "1", f"{BUILD}/examples/tutorial_one_process")
        two = losses(f"{BUILD}/bin/lockstep", "run", "-n", "2", f"{BUILD}/examples/tutorial_n_ranks")
        self.assertEqual(len(one), 4)
        for a, b in zip(one, two, strict=True):
            # The sums are grouped differently: float32 rounding, which 400 steps of AdamW amplify.
            self.assertLess(abs(a - b), 1e-3 * a)

    def test_blocks_that_no_rule_covers_are_errors(self):
        def block(language, *lines, tags=()):
            return pages.Block(pathlib.PurePath("page.md"), 1, language, list(lines), list(tags))

        self.assertIn("not given", problem_of(block("", "a layout of files")))
        self.assertEqual(problem_of(block("", "a layout of files", tags=["output"])), "")
        self.assertEqual(problem_of(block("", "lockstep train gpt", tags=["needs: minutes, CI runs it"])), "")
        self.assertIn("console", problem_of(block("console", "lockstep train gpt")))
        self.assertIn("text with a command", problem_of(block("text", "lockstep train gpt")))
        self.assertEqual(problem_of(block("text", "lockstep train gpt", tags=["output"])), "")
        self.assertIn("unknown need", problem_of(block("sh", "lockstep run x", tags=["needs: luck"])))
        self.assertIn("unknown tag", problem_of(block("sh", "lockstep run x", tags=["skip"])))
        hosts = block("sh", "lockstep run -n 2 a  # two", "lockstep run --nnodes 2 \\", "  b", tags=["needs: hosts: --nnodes 2"])
        self.assertEqual(split_needs(hosts), (["lockstep run -n 2 a"], [("lockstep run --nnodes 2    b", "hosts")]))
        with self.assertRaises(AssertionError):
            split_needs(block("sh", "lockstep run a", tags=["needs: hosts: --nnodes"]))
        with self.assertRaises(AssertionError):
            replaced(block("sh", "lockstep run a", tags=["replace: b -> c"]), ["lockstep run a"])


if __name__ == "__main__":
    unittest.main()
