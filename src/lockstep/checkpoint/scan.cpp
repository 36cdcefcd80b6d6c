#include "lockstep/checkpoint/scan.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/commit.h"
#include "lockstep/kernels/digest.h"

namespace lockstep {
namespace {

constexpr std::uint64_t kPage = 4096;  // slices end at pages, so that no page is read twice

FileBytes read_file(FileSystem& files, const std::string& path, const FileRecord& expected) {
  auto file = files.read(path + "/" + expected.name);
  if (file.size() != expected.bytes) {
    throw UsageError(fmt::format("{}/{} has {} bytes, the manifest expects {}", path, expected.name,
                                 file.size(), expected.bytes));
  }
  return file;
}

std::string table(std::span<const Proposal> proposals) {
  std::string lines;
  for (std::size_t rank = 0; rank < proposals.size(); ++rank) {
    const auto& proposal = proposals[rank];
    lines += fmt::format("; rank {} sees {} {}, {}", rank, proposal.num_steps,
                         proposal.num_steps == 1 ? "checkpoint" : "checkpoints",
                         proposal.step < 0 ? "none of them valid"
                                           : fmt::format("step {} with manifest {:016x}",
                                                         proposal.step, proposal.manifest_digest));
  }
  return lines;
}

constexpr std::string_view kAdvice =
    "`lockstep ckpt verify` prints the error of each checkpoint; to start from step 0, use another "
    "folder";

}  // namespace

std::vector<std::int64_t> list_steps(FileSystem& files, const std::string& folder) {
  std::vector<std::int64_t> steps;
  for (const auto& name : files.list(folder).value_or(std::vector<std::string>{})) {
    if (const auto step = try_step_of(name)) steps.push_back(*step);
  }
  std::ranges::sort(steps, std::greater<>());
  return steps;
}

ValidCheckpoint read_manifest(FileSystem& files, const std::string& path) {
  const auto file = files.read(path + "/" + kManifestName);
  try {
    return {path, manifest_from_text(file.text()), digest(file.bytes())};
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("{}: {}", file.name(), error.what()));
  }
}

ValidCheckpoint verify_checkpoint(FileSystem& files, const std::string& path) {
  auto checkpoint = read_manifest(files, path);
  const auto fault = digest_fault(checkpoint, digest_files(files, checkpoint));
  if (!fault.empty()) throw UsageError(fault);
  return checkpoint;
}

ValidCheckpoint open_step(FileSystem& files, const std::string& folder, std::int64_t step) {
  auto checkpoint = read_manifest(files, folder + "/" + step_name(step));
  if (checkpoint.manifest.step != step) {
    throw UsageError(fmt::format("{} has the manifest of step {}: the folder was renamed",
                                 checkpoint.path, checkpoint.manifest.step));
  }
  for (const auto& file : checkpoint.manifest.files) {
    (void)read_file(files, checkpoint.path, file);
  }
  return checkpoint;
}

ValidCheckpoint verify_step(FileSystem& files, const std::string& folder, std::int64_t step) {
  auto checkpoint = open_step(files, folder, step);
  const auto fault = digest_fault(checkpoint, digest_files(files, checkpoint));
  if (!fault.empty()) throw UsageError(fault);
  return checkpoint;
}

std::vector<std::uint64_t> digest_files(FileSystem& files, const ValidCheckpoint& checkpoint,
                                        FileSlice slice) {
  std::vector<std::uint64_t> digests;
  for (const auto& record : checkpoint.manifest.files) {
    const auto file = read_file(files, checkpoint.path, record);
    const auto pages = (file.size() + kPage - 1) / kPage;
    const auto cut = [&](int index) {
      const auto page =
          pages * static_cast<std::uint64_t>(index) / static_cast<std::uint64_t>(slice.count);
      return std::min(page * kPage, file.size());
    };
    const auto begin = cut(slice.index);
    const auto bytes = file.bytes().subspan(begin, cut(slice.index + 1) - begin);
    file.expect_front_to_back();
    Digest digest;
    digest.add(begin, bytes);
    digests.push_back(digest.value());
  }
  return digests;
}

std::string digest_fault(const ValidCheckpoint& checkpoint, std::span<const std::uint64_t> found) {
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto& expected = checkpoint.manifest.files[i];
    if (found[i] == expected.digest) continue;
    return fmt::format(
        "{}/{} has the digest {:016x}, the manifest expects {:016x}: the file was changed after it "
        "was written",
        checkpoint.path, expected.name, found[i], expected.digest);
  }
  return {};
}

std::map<std::string, std::int64_t> kept_steps(FileSystem& files, const std::string& folder,
                                               std::int64_t most) {
  std::map<std::string, std::int64_t> kept;
  for (const auto step : list_steps(files, folder)) {  // the newest first
    if (step > most) continue;
    try {
      const auto found = read_manifest(files, folder + "/" + step_name(step));
      for (const auto& name : found.manifest.kept_as) kept.try_emplace(name, step);
    } catch (const Error&) {  // reported when a run tries to resume from it
    }
  }
  return kept;
}

Agreement decide_common(std::span<const Proposal> proposals, const std::string& folder) {
  using Kind = Agreement::Kind;
  const auto newest = std::ranges::minmax(proposals, {}, &Proposal::step);
  if (newest.min.step < 0) {
    if (std::ranges::max(proposals, {}, &Proposal::num_steps).num_steps == 0) return {Kind::fresh};
    throw UsageError(fmt::format("{} has checkpoints, but none is valid on every rank{}; {}",
                                 folder, table(proposals), kAdvice));
  }
  if (newest.min.step != newest.max.step) return {Kind::propose_again, newest.min.step};
  const auto digests = std::ranges::minmax(proposals, {}, &Proposal::manifest_digest);
  if (digests.min.manifest_digest != digests.max.manifest_digest) {
    throw UsageError(
        fmt::format("{} does not contain the same checkpoint on every rank{}; use a folder on a "
                    "file system that all ranks share",
                    folder, table(proposals)));
  }
  return {Kind::resume, newest.min.step};
}

}  // namespace lockstep
