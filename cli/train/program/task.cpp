#include "cli/train/program/task.h"

#include <torch/torch.h>

#include <filesystem>

namespace lockstep::cli {

std::unique_ptr<Task> make_task(const SavedConfig& saved, const std::string& folder) {
  return trains_on_tokens(saved.resolved.config.model) ? make_token_task(saved, folder)
                                                       : make_sample_task(saved, folder);
}

void Task::move_to(at::Device device) {
  device_ = device;
  net().to(device);
}

std::vector<std::string> paths_in(const std::string& folder,
                                  const std::vector<std::string>& files) {
  std::vector<std::string> paths;
  for (const auto& file : files) paths.push_back(std::filesystem::path(folder) / file);
  return paths;
}

std::int64_t num_parameters(const torch::nn::Module& net) {
  std::int64_t count = 0;
  for (const auto& parameter : net.parameters()) count += parameter.numel();
  return count;
}

}  // namespace lockstep::cli
