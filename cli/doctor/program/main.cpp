// lockstep-doctor: the part of `lockstep doctor` that needs LibTorch. Prints which LibTorch this
// process has loaded, as lines "name: value", after a product of two matrices, because that is the
// first call that needs the processor's instructions.
#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <dlfcn.h>

#include <cstdio>
#include <string>

namespace {

// "TORCH_VERSION=2.11.0, …" in the description of the library that was loaded. The macro of the
// headers would be that of the build.
std::string loaded_version() {
  const auto text = at::show_config();
  const std::string name = "TORCH_VERSION=";
  const auto begin = text.find(name);
  if (begin == std::string::npos) return "unknown";
  const auto from = begin + name.size();
  return text.substr(from, text.find_first_of(", \n", from) - from);
}

std::string library_folder() {
  Dl_info info{};
  const auto function = &at::show_config;
  if (::dladdr(reinterpret_cast<const void*>(function), &info) == 0) return "unknown";
  const std::string path = info.dli_fname;
  return path.substr(0, path.rfind('/'));
}

// Loaded at run time: a build without NCCL reports it too.
std::string nccl_version() {
  void* library = ::dlopen("libnccl.so.2", RTLD_NOW);
  if (library == nullptr) return "";
  using GetVersion = int (*)(int*);
  const auto get = reinterpret_cast<GetVersion>(::dlsym(library, "ncclGetVersion"));
  int code = 0;
  if (get == nullptr || get(&code) != 0) return "";
  return std::to_string(code / 10000) + "." + std::to_string(code / 100 % 100) + "." +
         std::to_string(code % 100);
}

}  // namespace

int main() {
  const auto ones = at::ones({64, 64});
  const auto sum = at::mm(ones, ones).sum().item<float>();
  if (sum != 64.0F * 64 * 64) {
    std::fprintf(stderr, "error: a product of matrices has the sum %f, expected 262144\n",
                 static_cast<double>(sum));
    return 1;
  }
  std::printf("loaded: %s\nlibrary: %s\ngpus: %d\nnccl: %s\n", loaded_version().c_str(),
              library_folder().c_str(), at::hasCUDA() ? static_cast<int>(at::getNumGPUs()) : 0,
              nccl_version().c_str());
  return 0;
}
