"""Writes the seed corpus of safetensors files: valid ones, and one for each kind of hostile file.

Run from anywhere, with no argument, after a change here: it replaces the folder
tests/fuzz/corpus/safetensors_header_fuzz. The bytes depend only on this file. It needs no package:
safetensors_agreement.py compares the files with the reference.
"""

import json
import pathlib

CORPUS = pathlib.Path(__file__).parents[1] / "fuzz" / "corpus" / "safetensors_header_fuzz"


def framed(header: bytes, data: bytes = b"") -> bytes:
    """A file that begins with the correct length of `header`."""
    return len(header).to_bytes(8, "little") + header + data


def counting(size: int) -> bytes:
    """Data in which equal bytes at two offsets are rare, so that a wrong offset is detected."""
    return bytes((i * 37 + i // 251) % 256 for i in range(size))


def entry(dtype: str, shape: list, begin: int, end: int) -> dict:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def padded(tensors: dict) -> bytes:
    text = json.dumps(tensors, separators=(",", ":")).encode()
    return text + b" " * (-len(text) % 8)


def file_of(tensors: dict, data_bytes: int) -> bytes:
    return framed(padded(tensors), counting(data_bytes))


def one(fields: str, data_bytes: int = 4) -> bytes:
    """A file with the single tensor "w", whose object has `fields`, as text."""
    return framed(b'{"w":{' + fields.encode() + b"}}", counting(data_bytes))


F32 = '"dtype":"F32","shape":[1],"data_offsets":[0,4]'

DTYPE_BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8,
    "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip


def every_dtype() -> bytes:
    tensors, offset = {}, 0
    for dtype, bits in DTYPE_BITS.items():
        tensors["t." + dtype] = entry(dtype, [4], offset, offset + bits * 4 // 8)
        offset += bits * 4 // 8
    return file_of(tensors, offset)


def valid() -> dict[str, bytes]:
    two = {"a": entry("F32", [2, 2], 0, 16), "b": entry("I64", [1], 16, 24)}
    return {
        "valid_empty": framed(b"{}"),
        "valid_empty_padded": framed(b"{}      "),
        "valid_two_tensors": file_of(two, 24),
        "valid_reverse_order": file_of(dict(reversed(two.items())), 24),
        "valid_with_metadata": file_of({"__metadata__": {"format": "pt", "": ""}, **two}, 24),
        "valid_metadata_last": file_of({**two, "__metadata__": {"step": "12"}}, 24),
        "valid_metadata_only": file_of({"__metadata__": {}}, 0),
        "valid_scalar": file_of({"s": entry("F64", [], 0, 8)}, 8),
        "valid_zero_size": file_of({"z": entry("F32", [0, 7], 0, 0), **two}, 24),
        "valid_zero_size_last": file_of({**two, "z": entry("U8", [0], 24, 24)}, 24),
        "valid_every_dtype": every_dtype(),
        "valid_path_like_names": file_of(
            {"../../etc/passwd": entry("U8", [1], 0, 1), "/dev/null": entry("U8", [1], 1, 2),
             "": entry("U8", [1], 2, 3), "a\u0000b\u001b[31m": entry("U8", [1], 3, 4)}, 4),
        "valid_unicode_name": framed(
            '{"gewicht_ä_重み_\\ud83d\\ude00":{'.encode() + F32.encode() + b"}}", counting(4)),
        "valid_inner_whitespace": framed(
            b'{ "w" :\r\n\t{ "shape" : [ 1 ] , "data_offsets":[0 , 4],"dtype": "F32" } }', counting(4)),
        "valid_rank_64": file_of({"w": entry("U8", [1] * 64, 0, 1)}, 1),
        "valid_many_tensors": file_of(
            {f"layer.{i}": entry("U8", [1], i, i + 1) for i in range(50)}, 50),
    }  # fmt: skip


def bad_frame() -> dict[str, bytes]:
    good = one(F32)
    return {
        "file_empty": b"",
        "file_of_7_bytes": b"\x02\0\0\0\0\0\0",
        "length_zero": framed(b""),
        "length_2p64_minus_1": b"\xff" * 8 + b"{}",
        "length_2p63": (1 << 63).to_bytes(8, "little") + b"{}",
        "length_over_100_million": (100_000_001).to_bytes(8, "little") + b"{}",
        "length_beyond_file": (3).to_bytes(8, "little") + b"{}",
        "header_cut_short": (len(good) - 20).to_bytes(8, "little") + good[8:-12],
        "nul_padding": framed(b'{"w":{' + F32.encode() + b"}}\0\0\0\0", counting(4)),
        "nul_inside": framed(b'{"w":\0{' + F32.encode() + b"}}", counting(4)),
        "nul_in_name": framed(b'{"w\0":{' + F32.encode() + b"}}", counting(4)),
        "leading_space": framed(b" {}"),
        "leading_newline": framed(b"\n{}"),
        "byte_order_mark": framed(b"\xef\xbb\xbf{}"),
        "trailing_newline": framed(b"{}\n"),
        "trailing_tab_then_space": framed(b"{}\t "),
        "trailing_text": framed(b"{}x"),
        "two_objects": framed(b"{}{}"),
        "header_is_array": framed(b"[]"),
        "header_is_null": framed(b"null"),
        "zip_of_torch_save": b"PK\x03\x04\0\0\x08\x08" + b"archive/data.pkl" + counting(64),
        "pickle_os_system": b"\x80\x02cposix\nsystem\nX\x04\0\0\0true\x85R.",
        "pickle_protocol_4": b"\x80\x04\x95\x1c\0\0\0\0\0\0\0\x8c\x05posix\x8c\x06system\x93.",
    }


def bad_json() -> dict[str, bytes]:
    return {
        "bad_utf8": framed(b'{"\xff\xfe":{' + F32.encode() + b"}}", counting(4)),
        "bad_utf8_overlong": framed(b'{"\xc0\xaf":{' + F32.encode() + b"}}", counting(4)),
        "bad_utf8_surrogate": framed(b'{"\xed\xa0\x80":{' + F32.encode() + b"}}", counting(4)),
        "bad_escape_lone_surrogate": framed(b'{"\\ud800":{' + F32.encode() + b"}}", counting(4)),
        "raw_newline_in_name": framed(b'{"a\nb":{' + F32.encode() + b"}}", counting(4)),
        "json_unclosed": framed(b'{"w":{' + F32.encode() + b"}", counting(4)),
        "json_trailing_comma": framed(b'{"w":{' + F32.encode() + b"},}", counting(4)),
        "json_comment": framed(b"{/* */}"),
        "json_nan": one('"dtype":"F32","shape":[NaN],"data_offsets":[0,4]'),
        "deep_nesting_arrays": one('"dtype":"F32","shape":' + "[" * 1500 + "]" * 1500),
        "deep_nesting_objects": framed(b'{"a":' * 600 + b"1" + b"}" * 600),
    }


def bad_keys() -> dict[str, bytes]:
    empty = '"dtype":"U8","shape":[0],"data_offsets":[0,0]'
    text = f'{{"w":{{{F32}}},"w":{{{F32}}}}}'
    return {
        "duplicate_key": framed(text.encode(), counting(4)),
        "duplicate_key_empty": framed(f'{{"z":{{{empty}}},"z":{{{empty}}}}}'.encode()),
        "duplicate_key_by_escape": framed(text.replace('"w"', '"\\u0077"', 1).encode(), counting(4)),
        "duplicate_key_first_broken": framed(text.replace("[0,4]", "[9,4]", 1).encode(), counting(4)),
        "duplicate_field": one(F32 + ',"dtype":"I32"'),
        "duplicate_metadata": framed(b'{"__metadata__":{},"__metadata__":{}}'),
        "duplicate_metadata_key": framed(b'{"__metadata__":{"a":"1","a":"2"}}'),
        "metadata_number": framed(b'{"__metadata__":{"step":12}}'),
        "metadata_nested": framed(b'{"__metadata__":{"a":{"b":"c"}}}'),
        "metadata_value_null": framed(b'{"__metadata__":{"a":null}}'),
        "metadata_null": framed(b'{"__metadata__":null}'),
        "metadata_is_string": framed(b'{"__metadata__":"pt"}'),
        "unknown_field": one(F32 + ',"device":"cpu"'),
        "unknown_field_nested": one('"extra":{"a":[1,{"b":null}]},' + F32),
        "missing_dtype": one('"shape":[1],"data_offsets":[0,4]'),
        "missing_shape": one('"dtype":"F32","data_offsets":[0,4]'),
        "missing_data_offsets": one('"dtype":"F32","shape":[1]'),
        "tensor_is_array": framed(b'{"w":["F32",[1],[0,4]]}', counting(4)),
        "tensor_is_null": framed(b'{"w":null}'),
        "dtype_unknown": one('"dtype":"F128","shape":[1],"data_offsets":[0,4]'),
        "dtype_lower_case": one('"dtype":"f32","shape":[1],"data_offsets":[0,4]'),
        "dtype_is_object": one('"dtype":{"F32":null},"shape":[1],"data_offsets":[0,4]'),
        "dtype_is_number": one('"dtype":17,"shape":[1],"data_offsets":[0,4]'),
    }


def bad_numbers() -> dict[str, bytes]:
    def shape(sizes: str, end: int = 4, dtype: str = "F32") -> bytes:
        return one(f'"dtype":"{dtype}","shape":[{sizes}],"data_offsets":[0,{end}]', end)

    def offsets(numbers: str) -> bytes:
        return one(f'"dtype":"F32","shape":[1],"data_offsets":{numbers}')

    return {
        "overflow_2p32x2p32": shape("4294967296,4294967296", 0),
        "overflow_2p61_bits": shape("2305843009213693952", 0, "F64"),
        "overflow_times_zero": shape("4294967296,4294967296,0", 0),
        "overflow_after_zero": shape("0,4294967296,4294967296", 0),
        "shape_negative": shape("-1"),
        "shape_minus_zero": shape("-0", 0),
        "shape_float": shape("1.0"),
        "shape_exponent": shape("1e0"),
        "shape_2p64": shape("18446744073709551616"),
        "shape_huge_exponent": shape("1e999"),
        "shape_string": shape('"1"'),
        "shape_is_number": one('"dtype":"F32","shape":1,"data_offsets":[0,4]'),
        "shape_rank_65": shape(",".join(["1"] * 65)),
        "offsets_negative": offsets("[-4,0]"),
        "offsets_float": offsets("[0,4.0]"),
        "offsets_one": offsets("[4]"),
        "offsets_three": offsets("[0,4,4]"),
        "offsets_2p64": offsets("[0,18446744073709551620]"),
        "offsets_backwards": offsets("[4,0]"),
        "offsets_beyond_file": offsets("[0,8]"),
        "offsets_wrap": offsets("[18446744073709551612,18446744073709551615]"),
        "sub_byte_misaligned": shape("3", 2, "F4"),
        "sub_byte_six_bits": shape("2", 2, "F6_E2M3"),
        "size_mismatch_dtype": shape("1", 4, "F64"),
        "size_mismatch_shape": shape("2", 4),
    }


def bad_layout() -> dict[str, bytes]:
    def pair(first: list, second: list, data_bytes: int) -> bytes:
        tensors = {"a": entry("U8", [first[1] - first[0]], *first),
                   "b": entry("U8", [second[1] - second[0]], *second)}  # fmt: skip
        return file_of(tensors, data_bytes)

    return {
        "overlap": pair([0, 4], [2, 6], 6),
        "same_bytes_twice": pair([0, 4], [0, 4], 4),
        "hole_at_start": pair([1, 4], [4, 8], 8),
        "hole_between": pair([0, 4], [5, 8], 8),
        "tail_of_4_bytes": pair([0, 4], [4, 8], 12),
        "tail_without_tensors": framed(b"{}", b"\0\0\0\0"),
        "data_cut_short": pair([0, 4], [4, 8], 7),
        "data_missing": pair([0, 4], [4, 8], 0),
    }


def corpus() -> dict[str, bytes]:
    return valid() | bad_frame() | bad_json() | bad_keys() | bad_numbers() | bad_layout()


def large_cases() -> dict[str, bytes]:
    """Too large to store: they test the limits on memory. Compared with the reference, but not used as seeds."""
    keys = ",".join(f'"{i}":""' for i in range(100_001))
    return {
        "large_metadata_value": framed(b'{"__metadata__":{"a":"' + b"x" * (1 << 20) + b'"}}'),
        "large_metadata_key_count": framed(b'{"__metadata__":{' + keys.encode() + b"}}"),
        "large_name": framed(b'{"' + b"w" * 1_000_000 + b'":{' + F32.encode() + b"}}", counting(4)),
        "large_padding": framed(b"{}" + b" " * 2_000_000),
    }


def main() -> None:
    CORPUS.mkdir(parents=True, exist_ok=True)
    for old in CORPUS.iterdir():
        old.unlink()
    files = corpus()
    for name, data in files.items():
        assert len(data) < 4096, f"{name} has {len(data)} bytes: keep seeds below 4096"
        (CORPUS / name).write_bytes(data)
    print(f"{len(files)} files written to {CORPUS}")


if __name__ == "__main__":
    main()
