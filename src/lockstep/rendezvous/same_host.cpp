#include "lockstep/rendezvous/same_host.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/rendezvous/shared_page_internal.h"
#include "lockstep/rendezvous/world_locations_internal.h"

namespace lockstep {
namespace {

std::string hexadecimal(std::span<const std::byte> bytes) {
  std::string text;
  for (const auto byte : bytes) text += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  return text;
}

// One rank's part of the proof. The keys have a prefix with the number of the leader, the first
// rank.
class Proof {
 public:
  Proof(Store& store, std::span<const int> supposed, Deadline deadline)
      : store_(store),
        supposed_(supposed),
        deadline_(deadline),
        prefix_(fmt::format("host/{}", supposed.front())) {
    for (const int rank : supposed) members_.push_back({MemberKind::rank, rank});
    const auto self = std::find(supposed.begin(), supposed.end(), store.member().number);
    LOCKSTEP_ASSERT(self != supposed.end(), "a rank takes part only in the proof of its own host");
    index_ = static_cast<std::size_t>(self - supposed.begin());
  }

  // Offers the page, waits until all ranks have written, then checks each nonce.
  std::vector<int> lead() {
    const auto nonce = fresh_nonce();
    std::unique_ptr<SharedPage> page;
    std::unique_ptr<PageServer> server;
    try {
      page = std::make_unique<SharedPage>(supposed_.size());
      page->write(0, nonce);
      server = std::make_unique<PageServer>(*page);
    } catch (const SystemError&) {
      server.reset();  // without a shared page, every rank counts as a host
    }
    store_.set(key("nonce"), hexadecimal(nonce), deadline_);
    store_.set(key("page"), server ? server->name() : "", deadline_);
    store_.barrier(key("written"), members_, deadline_);
    server.reset();
    std::vector<int> proven{supposed_.front()};
    for (std::size_t index = 1; index < supposed_.size() && page; ++index) {
      const auto expected = store_.get_text(key_of(index), deadline_, members_[index]);
      if (hexadecimal(page->read(index)) == expected) proven.push_back(supposed_[index]);
    }
    store_.set(key("proven"), ranks_to_text(proven), deadline_);
    return proven;
  }

  std::vector<int> follow() {
    const auto leader = members_.front();
    const auto name = store_.get_text(key("page"), deadline_, leader);
    const auto leaders_nonce = store_.get_text(key("nonce"), deadline_, leader);
    const auto nonce = fresh_nonce();
    const auto page = try_write(name, leaders_nonce, nonce);
    store_.set(key_of(index_), page ? hexadecimal(nonce) : "not written", deadline_);
    store_.barrier(key("written"), members_, deadline_);
    return ranks_from_text(store_.get_text(key("proven"), deadline_, leader));
  }

 private:
  // Writes `nonce` into the page if it is the leader's page; returns null on any failure.
  [[nodiscard]] std::unique_ptr<SharedPage> try_write(const std::string& name,
                                                      const std::string& leaders_nonce,
                                                      const HandshakeNonce& nonce) const {
    if (name.empty()) return nullptr;
    try {
      auto page = std::make_unique<SharedPage>(request_page(name, deadline_), supposed_.size());
      if (hexadecimal(page->read(0)) != leaders_nonce) return nullptr;
      page->write(index_, nonce);
      return page;
    } catch (const Error&) {
      return nullptr;
    }
  }

  [[nodiscard]] std::string key(std::string_view what) const {
    return fmt::format("{}/{}", prefix_, what);
  }
  [[nodiscard]] std::string key_of(std::size_t index) const {
    return fmt::format("{}/nonce of {}", prefix_, supposed_[index]);
  }

  Store& store_;
  std::span<const int> supposed_;
  Deadline deadline_;
  std::string prefix_;
  std::vector<Member> members_;
  std::size_t index_ = 0;
};

}  // namespace

std::vector<int> prove_same_host(Store& store, std::span<const int> supposed, Deadline deadline) {
  Proof proof(store, supposed, deadline);
  if (supposed.size() == 1) return {supposed.begin(), supposed.end()};
  return store.member().number == supposed.front() ? proof.lead() : proof.follow();
}

}  // namespace lockstep
