// NCCL itself, found at run time. The types below are its binary interface since version 2.14, so
// that neither its header nor CUDA is needed to build; a test compares them with the header.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <ifaddrs.h>

#include <cstdlib>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/gpu/nccl_functions.h"
#include "lockstep/gpu/nccl_types.h"

namespace lockstep {
namespace {

using Comm = void*;
using Stream = void*;

struct Symbols {
  int (*version)(int*) = nullptr;
  int (*unique_id)(NcclUniqueId*) = nullptr;
  int (*init_rank)(Comm*, int size, NcclUniqueId, int rank, NcclConfig*) = nullptr;
  int (*async_error)(Comm, int* state) = nullptr;
  int (*finalize)(Comm) = nullptr;
  int (*destroy)(Comm) = nullptr;
  int (*abort)(Comm) = nullptr;
  const char* (*error_text)(int) = nullptr;
  const char* (*last_error)(Comm) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*send)(const void*, std::size_t, int type, int peer, Comm, Stream) = nullptr;
  int (*receive)(void*, std::size_t, int type, int peer, Comm, Stream) = nullptr;
  int (*broadcast)(const void*, void*, std::size_t, int type, int root, Comm, Stream) = nullptr;
  int (*all_gather)(const void*, void*, std::size_t, int type, Comm, Stream) = nullptr;
  int (*all_to_all)(const void*, void*, std::size_t, int type, Comm, Stream) = nullptr;
  int (*count)(Comm, int*) = nullptr;
  int (*all_reduce)(const void*, void*, std::size_t, int type, int op, Comm, Stream) = nullptr;
};

// Returns the name of a function that the library lacks; empty if it lacks none.
std::string find_symbols(void* library, Symbols& symbols) {
  std::string missing;
  const auto find = [&](const char* name, auto& function) {
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    if (function == nullptr && missing.empty()) missing = name;
  };
  find("ncclGetVersion", symbols.version);
  find("ncclGetUniqueId", symbols.unique_id);
  find("ncclCommInitRankConfig", symbols.init_rank);
  find("ncclCommGetAsyncError", symbols.async_error);
  find("ncclCommFinalize", symbols.finalize);
  find("ncclCommDestroy", symbols.destroy);
  find("ncclCommAbort", symbols.abort);
  find("ncclGetErrorString", symbols.error_text);
  find("ncclGetLastError", symbols.last_error);
  find("ncclGroupStart", symbols.group_start);
  find("ncclGroupEnd", symbols.group_end);
  find("ncclSend", symbols.send);
  find("ncclRecv", symbols.receive);
  find("ncclBroadcast", symbols.broadcast);
  find("ncclAllGather", symbols.all_gather);
  find("ncclCommCount", symbols.count);
  find("ncclAllReduce", symbols.all_reduce);
  // Since 2.28; sends and receives otherwise.
  symbols.all_to_all =
      reinterpret_cast<decltype(symbols.all_to_all)>(::dlsym(library, "ncclAlltoAll"));
  return missing;
}

int type_of(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return kNcclFloat64;
    case DType::float16:
      return kNcclFloat16;
    case DType::bfloat16:
      return kNcclBfloat16;
    default:
      return kNcclFloat32;
  }
}

class LibraryNccl final : public NcclFunctions {
 public:
  explicit LibraryNccl(const Symbols& symbols) : nccl_(symbols) {}

  DeviceStatus version(int& version) override { return status(nccl_.version(&version), nullptr); }

  DeviceStatus make_id(NcclId& id) override {
    NcclUniqueId own{};
    const auto result = nccl_.unique_id(&own);
    id = own.bytes;
    return status(result, nullptr);
  }

  DeviceStatus connect(void*& communicator, const NcclId& id, int rank, int size) override {
    NcclConfig config;
    return status(nccl_.init_rank(&communicator, size, {id}, rank, &config), nullptr);
  }

  DeviceStatus query(void* communicator, bool& ready) override {
    int state = kNcclSuccess;
    const int asked = nccl_.async_error(communicator, &state);
    ready = state != kNcclInProgress;
    return status(asked == kNcclSuccess ? state : asked, communicator);
  }

  DeviceStatus finalize(void* communicator) override {
    return status(nccl_.finalize(communicator), communicator);
  }
  DeviceStatus destroy(void* communicator) override {
    return status(nccl_.destroy(communicator), nullptr);
  }
  DeviceStatus abort(void* communicator) override {
    return status(nccl_.abort(communicator), nullptr);
  }
  DeviceStatus start_group() override { return status(nccl_.group_start(), nullptr); }
  DeviceStatus end_group() override { return status(nccl_.group_end(), nullptr); }

  DeviceStatus send(const std::byte* from, std::size_t bytes, int to, void* communicator,
                    void* stream) override {
    return status(nccl_.send(from, bytes, kNcclUint8, to, communicator, stream), communicator);
  }
  DeviceStatus receive(std::byte* to, std::size_t bytes, int from, void* communicator,
                       void* stream) override {
    return status(nccl_.receive(to, bytes, kNcclUint8, from, communicator, stream), communicator);
  }
  DeviceStatus all_gather(std::byte* to, const std::byte* from, std::size_t bytes,
                          void* communicator, void* stream) override {
    return status(nccl_.all_gather(from, to, bytes, kNcclUint8, communicator, stream),
                  communicator);
  }
  DeviceStatus all_to_all(std::byte* to, const std::byte* from, std::size_t bytes,
                          void* communicator, void* stream) override {
    if (nccl_.all_to_all != nullptr) {
      return status(nccl_.all_to_all(from, to, bytes, kNcclUint8, communicator, stream),
                    communicator);
    }
    int size = 0;
    int result = nccl_.count(communicator, &size);
    if (result == kNcclSuccess) result = nccl_.group_start();
    if (result != kNcclSuccess) return status(result, communicator);
    for (int peer = 0; peer < size && result == kNcclSuccess; ++peer) {
      const auto offset = static_cast<std::size_t>(peer) * bytes;
      result = nccl_.send(from + offset, bytes, kNcclUint8, peer, communicator, stream);
      if (result != kNcclSuccess) break;
      result = nccl_.receive(to + offset, bytes, kNcclUint8, peer, communicator, stream);
    }
    const int ended = nccl_.group_end();
    return status(result == kNcclSuccess ? ended : result, communicator);
  }
  DeviceStatus broadcast(std::byte* memory, std::size_t bytes, int root, void* communicator,
                         void* stream) override {
    return status(nccl_.broadcast(memory, memory, bytes, kNcclUint8, root, communicator, stream),
                  communicator);
  }
  DeviceStatus all_reduce(std::byte* to, const std::byte* from, std::size_t count, DType dtype,
                          ReduceOp op, void* communicator, void* stream) override {
    const int nccl_op = op == ReduceOp::average ? kNcclAverage : kNcclSum;
    return status(nccl_.all_reduce(from, to, count, type_of(dtype), nccl_op, communicator, stream),
                  communicator);
  }

 private:
  DeviceStatus status(int result, void* communicator) {
    if (result == kNcclSuccess || result == kNcclInProgress) return {};
    std::string text = nccl_.error_text(result);
    const char* last = nccl_.last_error(communicator);
    if (last != nullptr && *last != '\0') text += fmt::format(" ({})", last);
    return DeviceStatus::failed(std::move(text));
  }

  const Symbols nccl_;
};

}  // namespace

LoadedNccl load_nccl() {
  constexpr auto* kName = "libnccl.so.2";
  void* library = ::dlopen(kName, RTLD_NOW | RTLD_NOLOAD);  // LibTorch's copy
  if (library == nullptr) library = ::dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {nullptr, fmt::format("{} was not found", kName)};
  // Never closed: it keeps threads of its own.
  Symbols symbols;
  if (const auto missing = find_symbols(library, symbols); !missing.empty()) {
    return {nullptr,
            fmt::format("{} has no function {}; NCCL 2.14 or later is needed", kName, missing)};
  }
  int code = 0;
  auto functions = std::make_shared<LibraryNccl>(symbols);
  if (const auto status = functions->version(code); !status.ok()) return {nullptr, status.text()};
  return {std::move(functions),
          fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100)};
}

std::string interface_of(const std::string& address) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) throw SystemError("cannot list the network interfaces", errno);
  std::string name;
  for (const auto* entry = list; entry != nullptr && name.empty(); entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    char text[INET6_ADDRSTRLEN] = {};
    if (entry->ifa_addr->sa_family == AF_INET) {
      const auto* own = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
      (void)::inet_ntop(AF_INET, &own->sin_addr, text, sizeof text);
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
      const auto* own = reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr);
      (void)::inet_ntop(AF_INET6, &own->sin6_addr, text, sizeof text);
    }
    if (address == text) name = entry->ifa_name;
  }
  ::freeifaddrs(list);
  if (!name.empty()) return name;
  throw UsageError(
      fmt::format("no network interface has the address {}: set NCCL_SOCKET_IFNAME to "
                  "the interface that NCCL shall use",
                  address));
}

void bind_nccl_to(const std::string& interface) {
  // "=" asks for this name, not for names that start with it.
  (void)::setenv("NCCL_SOCKET_IFNAME", ("=" + interface).c_str(), /*overwrite=*/0);
}

}  // namespace lockstep
