#include "write_tensors.h"

#include <torch/torch.h>

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace lockstep {

void write_tensors(const std::string& path, const NamedTensors& tensors) {
  auto header = nlohmann::ordered_json::object();
  std::int64_t end = 0;
  for (const auto& [name, tensor] : tensors) {
    const auto begin = end;
    end += tensor.numel() * static_cast<std::int64_t>(sizeof(float));
    header[name] = {
        {"dtype", "F32"}, {"shape", tensor.sizes().vec()}, {"data_offsets", {begin, end}}};
  }
  const auto text = header.dump();
  std::ofstream file(path, std::ios::binary);
  const auto length = static_cast<std::uint64_t>(text.size());
  file.write(reinterpret_cast<const char*>(&length), sizeof(length));
  file << text;
  for (const auto& [name, tensor] : tensors) {
    const auto plain = tensor.detach().to(torch::kFloat).contiguous();
    file.write(static_cast<const char*>(plain.const_data_ptr()),
               plain.numel() * static_cast<std::int64_t>(sizeof(float)));
  }
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

}  // namespace lockstep
