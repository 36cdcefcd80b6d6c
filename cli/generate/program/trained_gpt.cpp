#include "cli/generate/program/trained_gpt.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>

#include "cli/ckpt/program/checkpoint_paths.h"
#include "lockstep/base/error.h"
#include "lockstep/checkpoint/commit.h"
#include "lockstep/checkpoint/loading.h"
#include "lockstep/checkpoint/tracked.h"
#include "lockstep/formats/safetensors_file.h"

namespace lockstep::cli {
namespace {

constexpr char kBest[] = "best";

std::unique_ptr<Tokenizer> tokenizer_of(const SavedConfig& saved) {
  auto tokenizer = open_tokenizer(saved.files.tokenizer);
  if (tokenizer->vocabulary_size() != saved.files.vocabulary) {
    throw UsageError(fmt::format(
        "the run was trained with a vocabulary of {} from {}, which now has {}: restore that table",
        saved.files.vocabulary, saved.files.tokenizer, tokenizer->vocabulary_size()));
  }
  return tokenizer;
}

bool is_kept_as_best(const Manifest& manifest) {
  return std::ranges::find(manifest.kept_as, kBest) != manifest.kept_as.end();
}

// The path of the requested checkpoint, for find_checkpoints.
std::string path_of(FileSystem& files, const GenerateRequest& request) {
  const auto folder = request.run + "/checkpoints";
  if (request.checkpoint == "last") return request.run;
  if (request.checkpoint == kBest) return request.run + "/" + kBest;
  if (request.checkpoint.empty()) {
    return kept_steps(files, folder).contains(kBest) ? request.run + "/" + kBest : request.run;
  }
  const auto path = folder + "/step-" + request.checkpoint;
  if (files.list(path)) return path;
  throw UsageError(fmt::format("{} has no checkpoint of step {}; it has steps {}", request.run,
                               request.checkpoint, fmt::join(list_steps(files, folder), ", ")));
}

void load(FileSystem& files, const ValidCheckpoint& checkpoint, models::Gpt& net) {
  const auto part = part_file("model");
  if (std::ranges::find(checkpoint.manifest.files, part, &FileRecord::name) ==
      checkpoint.manifest.files.end()) {
    throw UsageError(fmt::format("{} has no part called model", checkpoint.path));
  }
  const SafetensorsFile file(files.read(checkpoint.path + "/" + part));
  const auto tensors = track_module(*net)->named_tensors();
  const auto faults = differences(file, tensors);
  if (!faults.empty()) {
    throw UsageError(fmt::format("{} does not fit the config.json of its run: {}", checkpoint.path,
                                 fmt::join(faults, "; ")));
  }
  copy_into(tensors, file);
}

}  // namespace

TrainedGpt load_trained_gpt(const GenerateRequest& request) {
  const auto saved = config_of(request);
  const auto files = local_file_system();
  TrainedGpt trained{.net = models::Gpt(gpt_of(saved)), .tokenizer = tokenizer_of(saved)};
  const auto checkpoint = newest_valid_at(*files, path_of(*files, request));
  load(*files, checkpoint, trained.net);
  trained.step = checkpoint.manifest.step;
  trained.checkpoint = checkpoint.path;
  trained.is_best = is_kept_as_best(checkpoint.manifest);
  return trained;
}

}  // namespace lockstep::cli
