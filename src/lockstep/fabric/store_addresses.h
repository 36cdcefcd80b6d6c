// The exchange of addresses through the store of the job: about four requests per rank, whatever
// the size of the world. Each rank stores its address and all meet at a barrier; then rank 0 joins
// the addresses into one value, and each rank that needs one reads all of them at once.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/fabric/transport.h"
#include "lockstep/rendezvous/world.h"

namespace lockstep {

/// All addresses as one text, which every rank receives, so it is short: of each word of an
/// address, only what differs from the same word of the address before. Ranks of one host have the
/// same IP address and neighboring ports and pids.
/// An address has 7-bit characters without '\n'.
[[nodiscard]] std::string join_addresses(std::span<const std::string> addresses);
/// The inverse. Throws UsageError for other text, and for one that is not of `size` addresses.
[[nodiscard]] std::vector<std::string> split_addresses(std::string_view text, int size);

/// exchange() throws PeerError that names a rank that is lost, has left or has not come by the
/// deadline, and UsageError for an address that does not fit into a text of join_addresses.
class StoreAddressExchange final : public AddressExchange {
 public:
  /// `prefix` begins the names of the keys; the same on all ranks, and used once.
  StoreAddressExchange(const World& world, std::string prefix, Deadline deadline)
      : world_(world), prefix_(std::move(prefix)), deadline_(deadline) {}

  void exchange(const std::string& own) override;
  [[nodiscard]] std::string of(int rank) override;

 private:
  [[nodiscard]] std::string key_of(int rank) const;
  [[nodiscard]] std::string key_of_all() const { return prefix_ + "/all"; }
  [[nodiscard]] std::vector<std::string> collect(const std::string& own) const;

  const World& world_;
  std::string prefix_;
  Deadline deadline_;
  std::vector<std::string> addresses_;  // by rank; empty until the first of()
};

}  // namespace lockstep
