"""Writes the seeds of the fuzz target formats_fuzz: small files of every format, from independent writers
(numpy, the safetensors package, zipfile, gzip, csv, json, struct), and some invalid ones.

    python make_formats_corpus.py <folder>

A seed is one byte, the reader's number in src/lockstep/formats/read_whole_internal.h, then the file.
Files whose names begin with valid_ are accepted by the reader.
"""

import csv
import gzip
import io
import json
import pathlib
import struct
import sys
import zipfile

import numpy
import safetensors.numpy

READERS = ["tokens16", "tokens32", "llmc", "idx", "cifar", "npy", "npz", "csv", "text", "jsonl", "safetensors"]


def npy(array, version=None) -> bytes:
    out = io.BytesIO()
    numpy.lib.format.write_array(out, array, version=version, allow_pickle=True)
    return out.getvalue()


def npz(save, **arrays) -> bytes:
    out = io.BytesIO()
    save(out, **arrays)
    return out.getvalue()


def idx(code: int, array) -> bytes:
    big = array.astype(array.dtype.newbyteorder(">"))
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, code, array.ndim, *array.shape) + big.tobytes()


def llmc(magic: int, version: int, tokens) -> bytes:
    return struct.pack("<256i", magic, version, len(tokens), *[0] * 253) + tokens.tobytes()


def table(rows, **options) -> bytes:
    out = io.StringIO(newline="")
    csv.writer(out, **options).writerows(rows)
    return out.getvalue().encode()


def zipped(name: str, data: bytes, method=zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    member = zipfile.ZipInfo(name)
    member.compress_type = method
    with zipfile.ZipFile(out, "w") as archive, archive.open(member, "w", force_zip64=True) as contents:
        contents.write(data)
    return out.getvalue()


def valid() -> dict[str, tuple[str, bytes]]:
    floats = numpy.arange(6, dtype="<f4").reshape(2, 3)
    images = numpy.arange(2 * 4 * 4, dtype="u1").reshape(2, 4, 4)
    tokens = numpy.array([0, 1, 50256, 65535])
    pixels = bytes(range(256)) * 12
    return {
        "tokens16": ("tokens16", tokens.astype("<u2").tobytes()),
        "tokens32": ("tokens32", tokens.astype("<u4").tobytes()),
        "tokens_none": ("tokens16", b""),
        "llmc16": ("llmc", llmc(20240520, 1, tokens.astype("<u2"))),
        "llmc32": ("llmc", llmc(20240801, 7, tokens.astype("<u4"))),
        "idx_images": ("idx", idx(8, images)),
        "idx_images_gz": ("idx", gzip.compress(idx(8, images), mtime=0)),
        "idx_labels": ("idx", idx(8, numpy.array([3, 1, 4], dtype="u1"))),
        "idx_doubles": ("idx", idx(0x0E, numpy.array([[1.5], [-2.5]]))),
        "idx_shorts_gz": ("idx", gzip.compress(idx(0x0B, numpy.array([-2, 300], dtype="i2")), mtime=0)),
        "cifar10": ("cifar", b"\x03" + pixels + b"\x09" + pixels),
        "cifar100": ("cifar", b"\x13\x63" + pixels),
        "npy_floats": ("npy", npy(floats)),
        "npy_scalar": ("npy", npy(numpy.array(7, dtype="<i8"))),
        "npy_version_2": ("npy", npy(floats, (2, 0))),
        "npy_version_3": ("npy", npy(floats, (3, 0))),
        "npy_bool": ("npy", npy(numpy.array([True, False]))),
        "npy_empty": ("npy", npy(numpy.zeros((0, 4), dtype="<u2"))),
        "npz_stored": ("npz", npz(numpy.savez, a=floats, b=images)),
        "npz_deflated": ("npz", npz(numpy.savez_compressed, a=floats, b=images)),
        "npz_zip64": ("npz", zipped("x.npy", npy(floats))),
        "npz_none": ("npz", npz(numpy.savez)),
        "csv_names": ("csv", table([["a", "b"], ["1", "2.5"], ["-3e4", " 7"]])),
        "csv_quotes": ("csv", table([["a,b", 'say "hi"'], ["two\nlines", ""]], quoting=csv.QUOTE_ALL)),
        "csv_plain": ("csv", b"1,2\n3,4"),
        "csv_mark": ("csv", "\ufeffx,y\n1,2\n".encode()),
        "text": ("text", "One.\r\nTwo.\n\n\nThree é<|endoftext|>four".encode()),
        "jsonl": ("jsonl", b"".join(
            json.dumps(line).encode() + b"\n"
            for line in ({"text": "a"}, {"id": [1, {"text": 2}], "text": "é\n\U0001f600"}))),
        "jsonl_deep": ("jsonl", b'{"a":' + b"[" * 2000 + b"]" * 2000 + b',"text":"x"}'),
        "safetensors": ("safetensors", safetensors.numpy.save({"a": floats, "b": images})),
    }


def broken() -> dict[str, tuple[str, bytes]]:
    floats = npy(numpy.arange(6, dtype="<f4").reshape(2, 3))
    images = idx(8, numpy.zeros((2, 4, 4), dtype="u1"))
    deflated = npz(numpy.savez_compressed, a=numpy.zeros(1000))
    return {
        "tokens_odd": ("tokens16", b"abc"),
        "llmc_count": ("llmc", llmc(20240520, 1, numpy.zeros(4, "<u2"))[:-2]),
        "llmc_version": ("llmc", llmc(20240520, 2, numpy.zeros(4, "<u2"))),
        "llmc_negative": ("llmc", struct.pack("<256i", 20240520, 1, -1, *[0] * 253)),
        "idx_cut": ("idx", images[:-1]),
        "idx_more": ("idx", images + b"x"),
        "idx_huge": ("idx", bytes([0, 0, 8, 4]) + b"\xff" * 16),
        "idx_gz_huge": ("idx", gzip.compress(bytes([0, 0, 8, 3]) + b"\xff" * 12, mtime=0)),
        "idx_gz_cut": ("idx", gzip.compress(images, mtime=0)[:-5]),
        "idx_gz_crc": ("idx", gzip.compress(images, mtime=0)[:-8] + b"\0" * 8),
        "idx_gz_tail": ("idx", gzip.compress(images, mtime=0) + b"tail"),
        "cifar_label": ("cifar", b"\x0a" + b"\0" * 3072),
        "npy_object": ("npy", npy(numpy.array([None, {}], dtype=object))),
        "npy_big_endian": ("npy", npy(numpy.arange(3, dtype=">i4"))),
        "npy_fortran": ("npy", npy(numpy.asfortranarray(numpy.zeros((2, 3))))),
        "npy_records": ("npy", npy(numpy.zeros(2, dtype=[("a", "<i4"), ("b", "<f4")]))),
        "npy_cut": ("npy", floats[:-1]),
        "npy_overflow": ("npy", floats.replace(b"(2, 3), }            ", b"(4294967296,2147483648)}")),
        "npy_key_twice": ("npy", floats.replace(b"'fortran_order': False", b"'descr': '<f4', 'sha':0")),
        "npz_crc": ("npz", deflated[:60] + b"\xff" + deflated[61:]),
        "npz_encrypted": ("npz", zipped("x.npy", floats).replace(b"PK\1\2\x2d\3\x2d\0\0", b"PK\1\2\x2d\3\x2d\0\1")),
        "npz_method": ("npz", zipped("x.npy", floats, zipfile.ZIP_BZIP2)),
        "npz_other_member": ("npz", zipped("x.txt", b"hello")),
        "csv_uneven": ("csv", b"1,2\n3\n"),
        "csv_open_quote": ("csv", b'1,"2\n3,4\n'),
        "csv_inner_quote": ("csv", b'1,2"3\n'),
        "csv_after_quote": ("csv", b'"1"2,3\n'),
        "jsonl_array": ("jsonl", b'["text"]\n'),
        "jsonl_number": ("jsonl", b'{"text":1}\n'),
        "jsonl_twice": ("jsonl", b'{"text":"a","text":"b"}\n'),
        "jsonl_missing": ("jsonl", b'{"txt":"a"}\n'),
        "jsonl_cut": ("jsonl", b'{"text":"a'),
        "jsonl_not_utf8": ("jsonl", b'{"text":"\xff"}\n'),
        "safetensors_cut": ("safetensors", safetensors.numpy.save({"a": numpy.zeros(3)})[:-1]),
    }


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for prefix, files in (("valid_", valid()), ("", broken())):
        for name, (reader, data) in files.items():
            (folder / (prefix + name)).write_bytes(bytes([READERS.index(reader)]) + data)


if __name__ == "__main__":
    main()
