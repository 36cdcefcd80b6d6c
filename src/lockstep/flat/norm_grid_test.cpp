#include "lockstep/flat/norm_grid.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/random.h"
#include "lockstep/flat/gradient_norm.h"

namespace lockstep {
namespace {

std::int64_t width_of(const Segment& segment) {
  return static_cast<std::int64_t>(elementSize(segment.dtype));
}

// Parameters of a few elements up to a megabyte; some frozen, some empty.
std::vector<ParameterFacts> random_parameters(std::uint64_t seed) {
  RandomStream random({seed, random_purpose("norm grid")}, 0, 0);
  const auto below = [&](std::int64_t limit) {
    return static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(limit)));
  };
  constexpr std::array kDtypes{at::kFloat, at::kBFloat16, at::kDouble, at::kComplexFloat,
                               at::kHalf};
  const auto num_dtypes = 1 + below(static_cast<std::int64_t>(kDtypes.size()));
  std::vector<ParameterFacts> parameters;
  for (auto left = 1 + below(24); left > 0; --left) {
    const auto choice = below(10);
    const auto bytes = choice == 0  ? 0
                       : choice < 5 ? below(9000)
                       : choice < 6 ? 4096 * below(40)
                       : choice < 9 ? below(300'000)
                                    : below(1'000'000);
    const auto dtype = kDtypes.at(static_cast<std::size_t>(below(num_dtypes)));
    const auto count = bytes / static_cast<std::int64_t>(elementSize(dtype));
    parameters.push_back(
        {.name = "p", .dtype = dtype, .sizes = {count}, .strides = {1}, .trains = below(8) != 0});
  }
  return parameters;
}

struct Model {
  Layout layout;
  std::vector<at::Tensor> gradients;  // by segment
  std::vector<bool> has_gradient;     // by parameter
};

Model random_model(std::uint64_t seed) {
  Model model{.layout = lay_out(random_parameters(seed)), .gradients = {}, .has_gradient = {}};
  RandomStream random({seed, random_purpose("which have gradients")}, 0, 0);
  torch::manual_seed(static_cast<std::int64_t>(seed));
  for (const auto& segment : model.layout.segments) {
    // Everywhere, so that a sum with elements that do not count is not the oracle's.
    model.gradients.push_back(torch::randn({segment.length}, at::kFloat).to(segment.dtype));
  }
  for (const auto& slot : model.layout.slots) {
    const auto& segment = model.layout.segments[static_cast<std::size_t>(slot.segment)];
    // As in Ddp, frozen parameters have none.
    model.has_gradient.push_back(slot.begin < segment.trains_length && random.below(5) != 0);
  }
  return model;
}

// The squares of a slot's elements [begin, end), complex numbers as pairs.
std::vector<double> squares_of(const Model& model, int segment, std::int64_t begin,
                               std::int64_t end) {
  auto values = model.gradients[static_cast<std::size_t>(segment)].narrow(0, begin, end - begin);
  if (values.is_complex()) values = torch::view_as_real(values).flatten();
  const auto wide = values.to(at::kDouble).contiguous();
  const std::span all(wide.const_data_ptr<double>(), static_cast<std::size_t>(wide.numel()));
  std::vector<double> squares;
  for (const auto value : all) squares.push_back(value * value);
  return squares;
}

double added_in(std::size_t num_lanes, std::span<const double> numbers) {
  std::vector<double> lanes(num_lanes);
  for (std::size_t i = 0; i < numbers.size(); ++i) lanes[i % num_lanes] += numbers[i];
  for (auto half = num_lanes / 2; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

// The cells by definition, of trainable slots only: slot i in block b of a segment has number i + b
// behind those of the segments before it.
std::vector<double> cells_by_definition(const Model& model) {
  std::vector<double> cells;
  for (std::size_t number = 0; number < model.layout.segments.size(); ++number) {
    const auto& segment = model.layout.segments[number];
    const auto block = kShardBlockBytes / width_of(segment);
    const auto base = cells.size();
    auto size = static_cast<std::size_t>((segment.trains_length + block - 1) / block);
    for (const int index : segment.parameters) {
      const auto& slot = model.layout.slots[static_cast<std::size_t>(index)];
      if (slot.begin < segment.trains_length) ++size;
    }
    cells.resize(base + size);
    for (std::size_t i = 0; i < segment.parameters.size(); ++i) {
      const auto index = static_cast<std::size_t>(segment.parameters[i]);
      const auto& slot = model.layout.slots[index];
      if (!model.has_gradient[index]) continue;
      for (auto at = slot.begin; at < slot.begin + slot.count;) {
        const auto b = at / block;
        const auto end = std::min((b + 1) * block, slot.begin + slot.count);
        cells[base + i + static_cast<std::size_t>(b)] =
            added_in(16, squares_of(model, static_cast<int>(number), at, end));
        at = end;
      }
    }
  }
  return cells;
}

double total_by_definition(std::span<const double> cells) {
  std::vector<double> runs;
  for (std::size_t at = 0; at < cells.size(); at += 4096) {
    runs.push_back(
        added_in(256, cells.subspan(at, std::min<std::size_t>(4096, cells.size() - at))));
  }
  return added_in(256, runs);
}

// The parts of `elements` whose parameters have gradients, neighbors together as in
// FlatParameters::present_gradients(), in memory of their own: a shard need not lie in the segment.
void add_pieces(const Model& model, int number, ElementRange elements,
                std::vector<GradientPiece>& pieces) {
  const auto& segment = model.layout.segments[static_cast<std::size_t>(number)];
  const auto end = elements.begin + elements.count;
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
  bool open = false;
  for (const int index : segment.parameters) {
    const auto& slot = model.layout.slots[static_cast<std::size_t>(index)];
    const auto from = std::max(slot.begin, elements.begin);
    const auto to = std::min(slot.begin + slot.count, end);
    if (!model.has_gradient[static_cast<std::size_t>(index)]) open = false;
    if (!model.has_gradient[static_cast<std::size_t>(index)] || from >= to) continue;
    if (!open) ranges.emplace_back(from, to);
    ranges.back().second = to;
    open = true;
  }
  for (const auto& [from, to] : ranges) {
    const auto part = model.gradients[static_cast<std::size_t>(number)].narrow(0, from, to - from);
    pieces.push_back({number, from, part.clone()});
  }
}

std::vector<double> cells_of(const NormGrid& grid, std::span<const GradientPiece> pieces) {
  std::vector<double> cells(static_cast<std::size_t>(grid.num_cells()));
  square_cells(grid, pieces, cells);
  return cells;
}

std::vector<double> unsharded_cells(const Model& model, const NormGrid& grid) {
  std::vector<GradientPiece> pieces;
  for (std::size_t i = 0; i < model.gradients.size(); ++i) {
    add_pieces(model, static_cast<int>(i), {0, model.gradients[i].numel()}, pieces);
  }
  return cells_of(grid, pieces);
}

bool same_bits(std::span<const double> a, std::span<const double> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

TEST(NormGrid, SumsEachCellAsItsDefinition) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto model = random_model(seed);
    const NormGrid grid(model.layout);
    const auto cells = unsharded_cells(model, grid);
    const auto num_trainable = static_cast<std::size_t>(grid.num_trainable_cells());
    const auto expected = cells_by_definition(model);
    ASSERT_TRUE(same_bits(std::span(cells).first(num_trainable), expected));
    EXPECT_EQ(total_of_cells(cells), total_by_definition(expected));
    long double serial = 0;
    for (std::size_t i = 0; i < model.layout.slots.size(); ++i) {
      const auto& slot = model.layout.slots[i];
      if (!model.has_gradient[i]) continue;
      for (const auto square :
           squares_of(model, slot.segment, slot.begin, slot.begin + slot.count)) {
        serial += square;
      }
    }
    // A sum of at most 64 + 16 + 20 additions in a row: each rounds by at most 2^-53.
    EXPECT_NEAR(total_of_cells(cells), static_cast<double>(serial),
                1e-13 * static_cast<double>(serial));
  }
}

TEST(NormGrid, ShardsOfAnyNumberOfRanksGiveTheBitsOfOneRank) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const auto model = random_model(seed);
    const NormGrid grid(model.layout);
    const auto alone = unsharded_cells(model, grid);
    for (int num_ranks = 1; num_ranks <= 16; ++num_ranks) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", ranks " + std::to_string(num_ranks));
      const auto ownership = plan_ownership(model.layout, num_ranks);
      const auto owners = owners_of_cells(grid, ownership);
      ASSERT_EQ(owners.count(), grid.num_cells());
      std::vector<double> all(static_cast<std::size_t>(grid.num_cells()));
      for (int rank = 0; rank < num_ranks; ++rank) {
        std::vector<GradientPiece> pieces;
        for (const auto& span : ownership.spans) {
          add_pieces(model, span.segment, span.shard(rank), pieces);
        }
        auto own = cells_of(grid, pieces);
        for (const auto& range : owners.of(rank)) {  // as gather_from_owners does
          const auto first = static_cast<std::ptrdiff_t>(range.begin);
          std::copy_n(own.begin() + first, range.count, all.begin() + first);
          std::fill_n(own.begin() + first, range.count, 0.0);
        }
        EXPECT_EQ(std::count(own.begin(), own.end(), 0.0), std::ssize(own))
            << "rank " << rank << " has summed a cell of another rank";
      }
      ASSERT_TRUE(same_bits(all, alone));
      ASSERT_EQ(total_of_cells(all), total_of_cells(alone));
    }
  }
}

TEST(NormGrid, ThreadsDoNotChangeIt) {
  const auto threads_before = at::get_num_threads();
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const auto model = random_model(seed);
    const NormGrid grid(model.layout);
    at::set_num_threads(1);
    const auto alone = unsharded_cells(model, grid);
    for (const int threads : {2, 3, 5}) {
      at::set_num_threads(threads);
      EXPECT_TRUE(same_bits(unsharded_cells(model, grid), alone))
          << "seed " << seed << ", " << threads << " threads";
    }
  }
  at::set_num_threads(threads_before);
}

// A parameter without a gradient counts as one with zeros, whatever its neighbors.
TEST(NormGrid, ParametersWithoutAGradientChangeNoOtherSum) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    auto model = random_model(seed);
    const NormGrid grid(model.layout);
    const auto without = unsharded_cells(model, grid);
    for (std::size_t i = 0; i < model.layout.slots.size(); ++i) {
      const auto& slot = model.layout.slots[i];
      if (model.has_gradient[i]) continue;
      model.gradients[static_cast<std::size_t>(slot.segment)]
          .narrow(0, slot.begin, slot.count)
          .zero_();
      model.has_gradient[i] = true;  // frozen ones too
    }
    EXPECT_TRUE(same_bits(unsharded_cells(model, grid), without)) << "seed " << seed;
  }
}

// Cells of frozen slots have the last numbers, and no two cells have the same.
TEST(NormGrid, NumbersAscendWithThePositionInTheSegment) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto layout = lay_out(random_parameters(seed));
    const NormGrid grid(layout);
    std::vector<int> used(static_cast<std::size_t>(grid.num_cells()));
    for (int number = 0; number < static_cast<int>(layout.segments.size()); ++number) {
      const auto& segment = layout.segments[static_cast<std::size_t>(number)];
      const auto block = grid.block(number);
      std::int64_t covered = 0;
      std::int64_t last = -1;
      for (const auto& part : grid.slot_parts(number, {0, segment.length})) {
        covered += part.end - part.begin;
        const bool trains = part.begin < segment.trains_length;
        const auto count = (part.end - 1) / block - part.begin / block + 1;
        EXPECT_GT(part.first_cell, last);
        last = part.first_cell + count - 1;
        ASSERT_LT(last, trains ? grid.num_trainable_cells() : grid.num_cells());
        EXPECT_EQ(part.first_cell >= grid.num_trainable_cells(), !trains);
        for (auto cell = part.first_cell; cell <= last; ++cell) {
          ++used[static_cast<std::size_t>(cell)];
        }
        // The same cells by their keys, as the kernels for GPUs find them.
        const auto runs = grid.cell_runs(number, {part.begin, part.end - part.begin});
        ASSERT_EQ(runs.size(), 1U);
        EXPECT_EQ(runs[0].first_cell, part.first_cell);
        EXPECT_EQ(runs[0].count, count);
        EXPECT_TRUE(grid.is_border(number, part.begin));
        EXPECT_TRUE(grid.is_border(number, part.end));
        if (part.end - part.begin > 1 && (part.begin + 1) % block != 0) {
          EXPECT_FALSE(grid.is_border(number, part.begin + 1));
        }
      }
      std::int64_t elements = 0;
      for (const int index : segment.parameters) {
        elements += layout.slots[static_cast<std::size_t>(index)].count;
      }
      EXPECT_EQ(covered, elements);
      std::int64_t in_runs = 0;
      for (const auto& run : grid.cell_runs(number, {0, segment.length})) {
        for (auto i = run.first_cell; i < run.first_cell + run.count; ++i) {
          in_runs += used[static_cast<std::size_t>(i)];
        }
      }
      if (layout.segments.size() == 1) {
        EXPECT_EQ(in_runs, std::count(used.begin(), used.end(), 1));
      }
    }
    EXPECT_EQ(std::count_if(used.begin(), used.end(), [](int times) { return times > 1; }), 0);
    EXPECT_LE(std::count(used.begin(), used.end(), 0),
              static_cast<std::ptrdiff_t>(2 * layout.slots.size() + 2 * layout.segments.size()));
  }
}

}  // namespace
}  // namespace lockstep
