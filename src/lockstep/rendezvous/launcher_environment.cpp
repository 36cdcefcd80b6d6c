#include "lockstep/rendezvous/launcher_environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/kernels/digest.h"
#include "lockstep/net/handshake.h"
#include "lockstep/rendezvous/member.h"
#include "lockstep/rendezvous/slurm_nodes.h"

namespace lockstep {
namespace {

// The variables in which one launcher gives the six numbers; empty for a number it never gives.
struct Names {
  std::string_view rank, size, local_rank, local_size, node_rank, num_nodes;
};

constexpr Names kTorchrunNames{"RANK",       "WORLD_SIZE",      "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                               "GROUP_RANK", "GROUP_WORLD_SIZE"};
constexpr Names kOpenMpiNames{"OMPI_COMM_WORLD_RANK",
                              "OMPI_COMM_WORLD_SIZE",
                              "OMPI_COMM_WORLD_LOCAL_RANK",
                              "OMPI_COMM_WORLD_LOCAL_SIZE",
                              "",
                              ""};  // _NODE_RANK is not the number of a node
constexpr Names kMpichNames{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "", ""};

// The placement by one launcher, and the names of its variables.
struct Claim {
  Placement placement;
  Names names;
  bool one_per_node = false;
};

std::string in_words(const Claim& claim) {
  return fmt::format("{} says {}={} and {}={}", to_string(claim.placement.source), claim.names.rank,
                     claim.placement.rank, claim.names.size, claim.placement.size);
}

void expect_below(std::string_view small_name, int small, std::string_view big_name, int big) {
  if (small >= 0 && small < big) return;
  throw UsageError(fmt::format("{}={} contradicts {}={}: it must be from 0 to {}", small_name,
                               small, big_name, big, big - 1));
}

void expect_at_most(std::string_view small_name, int small, std::string_view big_name, int big) {
  if (small >= 1 && small <= big) return;
  throw UsageError(fmt::format("{}={} contradicts {}={}: it must be from 1 to {}", small_name,
                               small, big_name, big, big));
}

// Throws unless the numbers of one launcher are consistent.
void check(const Claim& claim) {
  const auto& [placement, names, one_per_node] = claim;
  expect_below(names.rank, placement.rank, names.size, placement.size);
  if (placement.local_size) {
    expect_at_most(names.local_size, *placement.local_size, names.size, placement.size);
    if (placement.local_rank) {
      expect_below(names.local_rank, *placement.local_rank, names.local_size,
                   *placement.local_size);
    }
  }
  if (placement.num_nodes) {
    expect_at_most(names.num_nodes, *placement.num_nodes, names.size, placement.size);
    if (placement.node_rank) {
      expect_below(names.node_rank, *placement.node_rank, names.num_nodes, *placement.num_nodes);
    }
  }
}

std::optional<int> find_number(const Environment& environment, std::string_view name) {
  if (name.empty()) return std::nullopt;
  const auto number = environment.find_integer(name);
  if (!number) return std::nullopt;
  if (*number < 0 || *number > kMaxMembers) {
    throw UsageError(
        fmt::format("{}={} is invalid: it must be from 0 to {}", name, *number, kMaxMembers));
  }
  return static_cast<int>(*number);
}

int need_number(const Environment& environment, std::string_view name, PlacementSource source) {
  if (const auto number = find_number(environment, name)) return *number;
  throw UsageError(
      fmt::format("variables of {} are set, but {} is not: start the program with the "
                  "launcher, or unset all of them",
                  to_string(source), name));
}

Claim read_claim(const Environment& environment, PlacementSource source, const Names& names) {
  Claim claim{{}, names};
  auto& placement = claim.placement;
  placement.source = source;
  placement.rank = need_number(environment, names.rank, source);
  placement.size = need_number(environment, names.size, source);
  placement.local_rank = find_number(environment, names.local_rank);
  placement.local_size = find_number(environment, names.local_size);
  placement.node_rank = find_number(environment, names.node_rank);
  placement.num_nodes = find_number(environment, names.num_nodes);
  check(claim);
  claim.one_per_node = placement.local_size == 1;
  return claim;
}

std::string text_of(const Environment& environment, std::string_view name) {
  return environment.find(name).value_or("");
}

std::optional<Endpoint> find_master(const Environment& environment) {
  const auto host = environment.find("MASTER_ADDR");
  const auto port = environment.find_integer("MASTER_PORT");
  if (!host && !port) return std::nullopt;
  if (!host || !port) {
    throw UsageError(fmt::format("{} is set, but {} is not: set both or none",
                                 host ? "MASTER_ADDR" : "MASTER_PORT",
                                 host ? "MASTER_PORT" : "MASTER_ADDR"));
  }
  if (*port < 1 || *port > 65535) {
    throw UsageError(fmt::format("MASTER_PORT={} is invalid: it must be from 1 to 65535", *port));
  }
  return Endpoint{*host, static_cast<std::uint16_t>(*port)};
}

std::uint64_t find_round(const Environment& environment, std::string_view name) {
  const auto round = environment.find_integer(name).value_or(0);
  if (round < 0) {
    throw UsageError(fmt::format("{}={} is invalid: it must not be negative", name, round));
  }
  return static_cast<std::uint64_t>(round);
}

// Shortens a name to the limit of the handshake; a digest of the whole name replaces its end.
std::string job_name(std::string name) {
  constexpr std::size_t kept = kMaxJobBytes - 17;
  if (name.size() <= kMaxJobBytes) return name;
  const auto rest = digest(std::as_bytes(std::span(name)));
  return fmt::format("{}-{:016x}", name.substr(0, kept), rest);
}

Claim read_lockstep(const Environment& environment) {
  auto claim = read_claim(environment, PlacementSource::lockstep, kTorchrunNames);
  claim.placement.master = find_master(environment);
  claim.placement.job = job_name(text_of(environment, "LOCKSTEP_JOB"));
  claim.placement.round = find_round(environment, "LOCKSTEP_ROUND");
  return claim;
}

std::optional<Claim> find_torchrun(const Environment& environment) {
  const auto run = environment.find("TORCHELASTIC_RUN_ID");
  if (!run) return std::nullopt;
  auto claim = read_claim(environment, PlacementSource::torchrun, kTorchrunNames);
  claim.placement.master = find_master(environment);
  claim.placement.round = find_round(environment, "TORCHELASTIC_RESTART_COUNT");
  const auto master =
      claim.placement.master ? claim.placement.master->to_string() : std::string("no master");
  claim.placement.job = job_name(fmt::format("torchrun-{}-{}", *run, master));
  return claim;
}

std::optional<Claim> find_plain(const Environment& environment) {
  if (environment.find("TORCHELASTIC_RUN_ID")) return std::nullopt;
  auto names = kTorchrunNames;
  const bool indexed = !environment.find("RANK") && environment.find("JOB_COMPLETION_INDEX");
  if (indexed) names.rank = "JOB_COMPLETION_INDEX";
  // Not every indexed Job is a training job; without a size it is ignored.
  if (!environment.find("WORLD_SIZE") && (indexed || !environment.find("RANK"))) {
    return std::nullopt;
  }
  auto claim = read_claim(environment, PlacementSource::plain, names);
  claim.placement.master = find_master(environment);
  claim.placement.job = job_name(fmt::format(
      "plain-{}", claim.placement.master ? claim.placement.master->to_string() : "no master"));
  return claim;
}

bool is_slurm_step(const Environment& environment) {
  if (!environment.find("SLURM_PROCID")) return false;
  const auto step = text_of(environment, "SLURM_STEP_ID");
  // SLURM's special step numbers, from slurm.h: SLURM_EXTERN_CONT, SLURM_BATCH_SCRIPT,
  // SLURM_INTERACTIVE_STEP, SLURM_PENDING_STEP.
  constexpr std::array<std::string_view, 8> not_steps{
      "", "batch", "extern", "interactive", "4294967290", "4294967291", "4294967292", "4294967293"};
  if (std::find(not_steps.begin(), not_steps.end(), step) != not_steps.end()) return false;
  const auto job = text_of(environment, "SLURM_JOB_NAME");
  return job != "bash" && job != "interactive";
}

// The first of two variables that is set: the number of the step before that of the whole job.
std::string_view step_or_job(const Environment& environment, std::string_view step,
                             std::string_view job) {
  return environment.find(step) ? step : job;
}

Endpoint slurm_master(const Environment& environment, const std::vector<std::string>& nodes) {
  const auto job = environment.find_integer("SLURM_JOB_ID").value_or(0);
  const auto step = environment.find_integer("SLURM_STEP_ID").value_or(0);
  const auto port = environment.find_integer("MASTER_PORT").value_or(15000 + (job + step) % 10000);
  if (port < 1 || port > 65535) {
    throw UsageError(fmt::format("MASTER_PORT={} is invalid: it must be from 1 to 65535", port));
  }
  return {environment.find("MASTER_ADDR").value_or(nodes.front()),
          static_cast<std::uint16_t>(port)};
}

std::optional<Claim> find_slurm(const Environment& environment) {
  if (!is_slurm_step(environment)) return std::nullopt;
  const Names names{
      "SLURM_PROCID",  step_or_job(environment, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
      "SLURM_LOCALID", "",
      "SLURM_NODEID",  step_or_job(environment, "SLURM_STEP_NUM_NODES", "SLURM_NNODES")};
  auto claim = read_claim(environment, PlacementSource::slurm, names);
  auto& placement = claim.placement;
  const auto counts_name =
      step_or_job(environment, "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE");
  claim.names.local_size = counts_name;
  claim.one_per_node = placement.num_nodes == placement.size;
  if (const auto counts = environment.find(counts_name); counts && placement.node_rank) {
    const auto each = expand_slurm_counts(*counts);
    expect_below(names.node_rank, *placement.node_rank,
                 fmt::format("the number of nodes in {}={}", counts_name, *counts),
                 static_cast<int>(each.size()));
    placement.local_size = each[static_cast<std::size_t>(*placement.node_rank)];
    check(claim);
  }
  const auto list_name = step_or_job(environment, "SLURM_STEP_NODELIST", "SLURM_NODELIST");
  if (const auto list = environment.find(list_name)) {
    const auto nodes = expand_slurm_nodes(*list);
    if (placement.num_nodes && static_cast<int>(nodes.size()) != *placement.num_nodes) {
      throw UsageError(fmt::format("{}={} contradicts {}={}, which has {}", names.num_nodes,
                                   *placement.num_nodes, list_name, *list, nodes.size()));
    }
    placement.master = slurm_master(environment, nodes);
  }
  placement.job = job_name(fmt::format("slurm-{}.{}", text_of(environment, "SLURM_JOB_ID"),
                                       text_of(environment, "SLURM_STEP_ID")));
  placement.round = find_round(environment, "SLURM_RESTART_COUNT");
  return claim;
}

std::optional<Claim> find_open_mpi(const Environment& environment) {
  if (!environment.find("OMPI_COMM_WORLD_RANK")) return std::nullopt;
  auto claim = read_claim(environment, PlacementSource::open_mpi, kOpenMpiNames);
  const auto pmix = find_number(environment, "PMIX_RANK");
  if (pmix && *pmix != claim.placement.rank) {
    throw UsageError(
        fmt::format("{}, but PMIx says PMIX_RANK={}: the variables of two runs are "
                    "mixed, unset those of the outer one",
                    in_words(claim), *pmix));
  }
  claim.placement.master = find_master(environment);
  claim.placement.job =
      job_name(fmt::format("open_mpi-{}", text_of(environment, "PMIX_NAMESPACE")));
  return claim;
}

std::optional<Claim> find_mpich(const Environment& environment) {
  if (!environment.find("PMI_RANK")) return std::nullopt;
  auto claim = read_claim(environment, PlacementSource::mpich, kMpichNames);
  claim.placement.master = find_master(environment);
  claim.placement.job = "mpich";
  return claim;
}

bool agree(const Claim& a, const Claim& b) {
  const auto same = [](const std::optional<int>& x, const std::optional<int>& y) {
    return !x || !y || *x == *y;
  };
  return a.placement.rank == b.placement.rank && a.placement.size == b.placement.size &&
         same(a.placement.local_rank, b.placement.local_rank);
}

// Whether `outer` started one process per node, and one of these started the ranks of `inner`.
bool explains(const Claim& outer, const Claim& inner) {
  const auto& nodes = inner.placement.num_nodes;
  return outer.one_per_node && outer.placement.size <= inner.placement.size &&
         (!nodes || *nodes == outer.placement.size) &&
         inner.placement.source != PlacementSource::plain &&
         outer.placement.source != PlacementSource::torchrun &&
         outer.placement.source != PlacementSource::plain;
}

// Chooses one of two claims; `first` is earlier in the order.
const Claim& choose(const Claim& first, const Claim& second) {
  if (agree(first, second)) return first;
  if (explains(second, first)) return first;
  if (first.placement.source == PlacementSource::slurm && explains(first, second)) return second;
  auto message = fmt::format("two launchers give this process different ranks: {}, but {}",
                             in_words(first), in_words(second));
  if (first.placement.rank == second.placement.rank &&
      first.placement.size == second.placement.size) {
    message += fmt::format(" ({}={}, {}={})", first.names.local_rank, *first.placement.local_rank,
                           second.names.local_rank, *second.placement.local_rank);
  }
  throw UsageError(message + ": unset the variables of the one that did not start the ranks");
}

// Adds the numbers that follow from the given ones.
void complete(Placement& placement) {
  if (placement.size == 1) {
    placement.local_rank = placement.local_rank.value_or(0);
    placement.local_size = placement.local_size.value_or(1);
  }
  if (placement.local_size == placement.size) {
    placement.node_rank = placement.node_rank.value_or(0);
    placement.num_nodes = placement.num_nodes.value_or(1);
  }
}

Placement find_without_run_dir(const Environment& environment) {
  if (environment.find("LOCKSTEP_STORE")) return read_lockstep(environment).placement;
  std::vector<Claim> claims;
  for (const auto find : {find_torchrun, find_slurm, find_open_mpi, find_mpich, find_plain}) {
    if (auto claim = find(environment)) claims.push_back(std::move(*claim));
  }
  if (claims.empty()) return {};
  const Claim* chosen = &claims.front();
  for (const auto& claim : std::span(claims).subspan(1)) chosen = &choose(*chosen, claim);
  return chosen->placement;
}

}  // namespace

std::string_view to_string(PlacementSource source) noexcept {
  switch (source) {
    case PlacementSource::lockstep:
      return "lockstep run";
    case PlacementSource::torchrun:
      return "torchrun";
    case PlacementSource::slurm:
      return "srun (SLURM)";
    case PlacementSource::open_mpi:
      return "mpirun (Open MPI)";
    case PlacementSource::mpich:
      return "mpiexec (MPICH)";
    case PlacementSource::plain:
      return "RANK and WORLD_SIZE";
    case PlacementSource::none:
      break;
  }
  return "no launcher";
}

Placement find_placement(const Environment& environment) {
  auto placement = find_without_run_dir(environment);
  complete(placement);
  placement.run_dir = environment.find("LOCKSTEP_RUN_DIR");
  placement.network = network_settings(environment);
  return placement;
}

}  // namespace lockstep
