#include "subject.h"

#include <torch/torch.h>

#include <vector>

#include "lockstep/base/error.h"
#include "models/benchmark_transformer.h"
#include "models/made_up_numbers.h"
#include "models/mlp.h"

namespace lockstep {
namespace {

constexpr std::int64_t kClasses = 10;
constexpr std::size_t kHiddenLayers = 8;

template <typename Model>
Subject subject_of(Model net, const at::Tensor& input, const at::Tensor& target) {
  models::fill(*net);
  return {net.ptr(), [net, input, target]() mutable {
            return torch::cross_entropy_loss(net->forward(input).flatten(0, -2), target.flatten());
          }};
}

}  // namespace

Subject make_subject(const SubjectOptions& options, int rank) {
  if (options.model == "mlp") {
    std::vector<std::int64_t> widths(kHiddenLayers + 1, options.size);
    widths.push_back(kClasses);
    return subject_of(models::Mlp(models::MlpOptions{widths}),
                      models::made_up_numbers({options.batch, options.size}, rank),
                      models::made_up_classes(options.batch, kClasses, rank));
  }
  if (options.model == "transformer") {
    const models::BenchmarkTransformerOptions exactly;
    const auto tokens =
        models::made_up_tokens(options.batch, options.size + 1, exactly.vocabulary, rank);
    return subject_of(models::BenchmarkTransformer(exactly), tokens.narrow(1, 0, options.size),
                      tokens.narrow(1, 1, options.size));
  }
  throw UsageError("unknown model '" + options.model + "': expected mlp or transformer");
}

}  // namespace lockstep
