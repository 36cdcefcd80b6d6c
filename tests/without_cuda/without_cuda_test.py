"""The build without CUDA, where this one has it: what differs compiles, everything else links with it, and a program runs.

    without_cuda_test.py SOURCE BUILD PROGRAM [cmake arguments]...

Most newcomers have no CUDA. Files that both configurations compile do not depend on CUDA (CUDA headers are only in files of
its own), so only the files that the configuration without CUDA adds are compiled here: seconds instead of minutes. PROGRAM, a
test of BUILD, is then linked with these in place of CUDA's, without CUDA's libraries, and run.
"""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

IS_TEST = re.compile(r"_test\.|/testing/|/test_|_fuzz\.|/tests/|/benchmarks/|/examples/")
CUDA_LIBRARIES = re.compile(r"cudart|cudadevrt|torch_cuda|c10_cuda|libcuda\b")


def output_of(*command, **more):
    return subprocess.run([str(word) for word in command], check=True, text=True, stdout=subprocess.PIPE, **more).stdout


def objects(build):
    """{source: its objects}, relative to the build folder, without tests."""
    found = {}
    for entry in json.loads(output_of("ninja", "-C", build, "-t", "compdb")):
        source, target = pathlib.Path(entry["file"]), entry["output"]
        if target.endswith(".o") and source.suffix in (".cpp", ".cu") and not IS_TEST.search(f"{source} {target}"):
            found.setdefault(str(source), []).append(target)
    return found


def symbols(files, kind):
    """The names that `files` define or need."""
    listed = output_of("nm", "-P", f"--{kind}-only", *files)
    return {line.split()[0] for line in listed.splitlines() if len(line.split()) >= 2 and line.split()[1] != "r"}


def expect_same_functions(common, with_cuda, without):
    """Every function that the common objects use of CUDA's files is in the other files too."""
    needed = symbols(common, "undefined") & symbols(with_cuda, "defined")
    missing = needed - symbols(without, "defined")
    assert needed, "nothing uses the files of CUDA: this test compares the wrong files"
    assert not missing, "missing without CUDA:\n" + output_of("c++filt", *sorted(missing))


def relinked(build, program, work, with_cuda, without):
    """The path of `program`, linked with the files `without` in place of `with_cuda`."""
    link = output_of("ninja", "-C", build, "-t", "commands", "-s", program.relative_to(build)).strip().splitlines()[-1]
    archive = work / "libwithout_cuda.a"
    output_of("ar", "qc", archive, *without)
    removed = {path.name for path in with_cuda}
    words = []
    for word in shlex.split(link):
        if CUDA_LIBRARIES.search(word):
            continue
        if word.endswith(".a") and (build / word).exists():
            members = output_of("ar", "t", build / word).split()
            if removed & set(members):
                copy = work / pathlib.Path(word).name
                shutil.copy(build / word, copy)
                output_of("ar", "d", copy, *sorted(removed & set(members)))
                words += [str(copy), str(archive)]
                continue
        words.append(word)
    target = work / program.name
    words[words.index("-o") + 1] = str(target)
    command = " ".join("&&" if word == "&&" else shlex.quote(word) for word in words)
    subprocess.run(command, shell=True, check=True, cwd=build)
    return target


def main():
    source, build, program = map(pathlib.Path, sys.argv[1:4])
    with tempfile.TemporaryDirectory(prefix="lockstep-without-cuda-") as folder:
        work = pathlib.Path(folder)
        output_of("cmake", "-S", source, "-B", work / "build", "-G", "Ninja", "-DLOCKSTEP_CUDA=OFF", "-DLOCKSTEP_PCH=OFF",
                  "-DLOCKSTEP_WERROR=ON", "-DLOCKSTEP_BUILD_TESTS=OFF", "-DLOCKSTEP_BUILD_BENCHMARKS=OFF",
                  "-DLOCKSTEP_BUILD_EXAMPLES=OFF", "-DLOCKSTEP_BUILD_CLI=OFF", "-DCMAKE_BUILD_TYPE=Debug", *sys.argv[4:])
        here, there = objects(build), objects(work / "build")
        rooms = str(source / "src") + "/"
        of_cuda = {file for file in here.keys() - there.keys() if file.startswith(rooms)}
        with_cuda = [path for file in of_cuda for each in here[file] if (path := build / each).exists()]
        common = [path for file in here.keys() - of_cuda for each in here[file] if (path := build / each).exists()]
        added = sorted(each for file in there.keys() - here.keys() for each in there[file])
        assert added and with_cuda, f"the configurations do not differ: {added}, {with_cuda}"
        subprocess.run(["ninja", "-C", str(work / "build"), *added], check=True)
        without = [work / "build" / each for each in added]
        expect_same_functions(common, with_cuda, without)
        print(output_of(relinked(build, program, work, with_cuda, without),
                        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})[-500:])


if __name__ == "__main__":
    main()
