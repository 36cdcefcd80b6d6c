#include <fmt/format.h>
#include <signal.h>

#include <chrono>
#include <system_error>
#include <thread>
#include <utility>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/gpu/nccl_communicator_internal.h"

namespace lockstep {
namespace {

void expect_nccl(const DeviceStatus& status, std::string_view what) {
  if (!status.ok()) throw SystemError(fmt::format("NCCL {}: {}", what, status.text()));
}

constexpr auto* kAborted = "NCCL: the communicator has been aborted";
constexpr std::chrono::seconds kAbortTime{5};

}  // namespace

NcclComm::NcclComm(std::shared_ptr<NcclFunctions> functions, const NcclId& id, const NcclRank& own)
    : functions_(std::move(functions)) {
  expect_nccl(functions_->connect(comm_, id, own.rank, own.size), "cannot connect the ranks");
}

NcclComm::~NcclComm() {
  abort();
  if (is_freed_.valid()) (void)is_freed_.wait_for(kAbortTime);
}

bool NcclComm::ready() {
  const std::lock_guard lock(mutex_);
  return query();
}

bool NcclComm::query() {
  if (comm_ == nullptr) throw SystemError(kAborted);
  bool ready = false;
  if (failure_.ok()) failure_ = functions_->query(comm_, ready);
  expect_nccl(failure_, "failed");
  return ready;
}

std::optional<std::string> NcclComm::find_error() noexcept {
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return std::nullopt;
  bool ready = false;
  if (failure_.ok()) failure_ = functions_->query(comm_, ready);
  return failure_.ok() ? std::nullopt : std::optional(failure_.text());
}

void NcclComm::enqueue(const Calls& calls) {
  const std::lock_guard lock(mutex_);
  const bool ready = query();  // it may have failed since ready()
  LOCKSTEP_ASSERT(ready, "a call of NCCL follows the end of the earlier ones");
  expect_nccl(functions_->start_group(), "cannot start a group of calls");
  const auto called = calls(*functions_, comm_);
  const auto ended = functions_->end_group();  // also after a refusal: the group is open per thread
  expect_nccl(called, "refuses a call");
  expect_nccl(ended, "cannot enqueue a call");
}

// The thread owns all that it uses: it may outlive this object.
void NcclComm::abort() noexcept {
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return;
  const auto free = [functions = functions_, comm = std::exchange(comm_, nullptr)] {
    (void)functions->abort(comm).ok();
  };
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, &before);  // signals are for the threads of the program
  try {
    std::packaged_task<void()> task(free);
    is_freed_ = task.get_future();
    std::thread(std::move(task)).detach();
  } catch (const std::system_error&) {
    free();  // there is no thread to be had
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

bool NcclComm::close(Deadline deadline, const std::function<void()>& check) noexcept {
  constexpr std::chrono::microseconds kPause{200};
  try {
    {
      const std::lock_guard lock(mutex_);
      if (comm_ == nullptr) return false;
      expect_nccl(functions_->finalize(comm_), "cannot finalize");
    }
    while (!ready()) {
      check();
      if (deadline.expired()) throw SystemError("NCCL: the other ranks do not finalize");
      std::this_thread::sleep_for(kPause);
    }
    const std::lock_guard lock(mutex_);
    if (comm_ == nullptr) return false;
    return functions_->destroy(std::exchange(comm_, nullptr)).ok();
  } catch (const std::exception&) {
    abort();
    return false;
  }
}

bool NcclComm::is_open() const noexcept {
  const std::lock_guard lock(mutex_);
  return comm_ != nullptr;
}

NcclId make_nccl_id(NcclFunctions& functions) {
  NcclId id{};
  expect_nccl(functions.make_id(id),
              "cannot create an id; check that the network interface of NCCL_SOCKET_IFNAME exists");
  return id;
}

}  // namespace lockstep
