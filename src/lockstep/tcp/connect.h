// The transport of ranks on different hosts: TCP.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/fabric/exchange_plan.h"
#include "lockstep/fabric/transport.h"
#include "lockstep/trace/link_speed.h"

namespace lockstep {

struct TcpOptions {
  // The largest input that travels with its call, at most 16 KiB; equal on all ranks.
  std::size_t inline_bytes = 16U << 10;
  // A rank whose process does not answer for this long is lost. A process that is stopped, for
  // example by a debugger, does not answer; one that computes does. Valid for all groups of a
  // world: the first one sets it. nullopt: that of the job's network settings.
  std::optional<std::chrono::milliseconds> heartbeat = {};
  // Whether data are checked by CRC-32C, so that a changed bit is an error and never a wrong sum.
  // Without, TCP's own checksum of 16 bits remains. For measurements; equal on all ranks, valid for
  // all groups of a world. Ranks that differ lose their connections at the first data.
  bool checks_data = true;
  // Whether data are encrypted and authenticated (AES-256-GCM) instead of checked. Valid for all
  // groups of a world: the first one sets it. Ranks that differ are refused. nullopt: that of the
  // job's network settings.
  std::optional<bool> encrypts_data = {};
  // Data connections per pair of ranks, at least one per interface of the network settings. Valid
  // for all groups of a world: the first one sets it. nullopt: that of the network settings.
  std::optional<int> stripes = {};
  // If set, connects the ranks of each host: large data then cross the network once per host, and
  // move through the memory of this transport inside a host.
  Connect within_host = {};
  // Threads that move the data of several stripes at the same time, that of the caller included: at
  // least 1. Valid for all groups of a world: the first one sets it. nullopt: one per core of this
  // rank's part on which no rank computes (idle_cores.h), at least 1.
  std::optional<int> stripe_threads = {};
  // With within_host, the shared memory per rank through which data pass that are not in registered
  // memory: this much for inputs, and for results; equal on all ranks.
  std::size_t stage_bytes = 2U << 20;
  // In larger groups, ranks relay what goes to all of them, and are connected to few others until
  // they exchange data; equal on all ranks.
  int most_direct = kMostDirect;
  // How the group reduces.
  ExchangeOptions exchange = {};
  // For tests: the host of a global rank, instead of that of the world.
  std::function<int(int global_rank)> host_of = {};
};

/// Connects ranks on any hosts by TCP, each at the address of World::address_of, at a port of the
/// job's network settings.
/// The transport throws UsageError if ranks of several hosts are to use a loopback address.
[[nodiscard]] Connect connect_by_tcp(const TcpOptions& options = {});

/// What the kernel has counted for the connections of `network`, which connect_by_tcp() has made
/// (GroupRegistry::network); empty for null.
[[nodiscard]] std::vector<LinkCount> link_counts(const std::shared_ptr<void>& network);
/// The processor time of the threads that move its bytes beside its callers; 0 for null.
[[nodiscard]] double network_thread_seconds(const std::shared_ptr<void>& network);

}  // namespace lockstep
