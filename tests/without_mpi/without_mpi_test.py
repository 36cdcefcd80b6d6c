"""The build without MPI, where this one has it: no file that it compiles needs MPI, and what differs compiles.

    without_mpi_test.py SOURCE BUILD [cmake arguments]...

Files that both configurations compile are the same, so only the file that the configuration without MPI adds is compiled
here. mpi_no_mpi_test runs it.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

IS_TEST = re.compile(r"_test\.|/testing/|/tests/")


def output_of(*command):
    return subprocess.run([str(word) for word in command], check=True, text=True, stdout=subprocess.PIPE).stdout


def objects(build, rooms):
    """{source: [objects]} of the rooms, without tests."""
    found = {}
    for entry in json.loads(output_of("ninja", "-C", build, "-t", "compdb")):
        source = str(pathlib.Path(entry["file"]))
        if entry["output"].endswith(".o") and source.startswith(rooms) and not IS_TEST.search(source):
            found.setdefault(source.removeprefix(rooms), []).append(entry["output"])
    return found


def main():
    source, build = map(pathlib.Path, sys.argv[1:3])
    rooms = str(source / "src/lockstep") + "/"
    with tempfile.TemporaryDirectory(prefix="lockstep-without-mpi-") as folder:
        work = pathlib.Path(folder)
        output_of("cmake", "-S", source, "-B", work, "-G", "Ninja", "-DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON", "-DLOCKSTEP_CUDA=OFF",
                  "-DLOCKSTEP_PCH=OFF", "-DLOCKSTEP_WERROR=ON", "-DLOCKSTEP_BUILD_TESTS=OFF", "-DLOCKSTEP_BUILD_BENCHMARKS=OFF",
                  "-DLOCKSTEP_BUILD_EXAMPLES=OFF", "-DLOCKSTEP_BUILD_CLI=OFF", "-DCMAKE_BUILD_TYPE=Debug", *sys.argv[3:])
        here, there = objects(build, rooms), objects(work, rooms)
        only_here = {file for file in here.keys() - there.keys() if file.startswith("mpi/")}
        assert {"mpi/has_mpi.cpp", "mpi/init.cpp", "mpi/network.cpp"} <= only_here, only_here
        assert "mpi/no_mpi.cpp" in there and "mpi/connect.cpp" in there, there.keys()
        with_mpi_h = [file for file in there if "mpi.h>" in (source / "src/lockstep" / file).read_text()]
        assert not with_mpi_h, f"these include mpi.h in a build without MPI: {with_mpi_h}"
        subprocess.run(["ninja", "-C", str(work), *there["mpi/no_mpi.cpp"]], check=True)
        defined = output_of("nm", "-C", "--defined-only", *(work / each for each in there["mpi/no_mpi.cpp"]))
        assert "lockstep::how_to_get_mpi" in defined, defined


if __name__ == "__main__":
    main()
