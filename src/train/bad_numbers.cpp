#include "train/bad_numbers.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/error.h"
#include "kernels/adamw.h"

namespace slime::train {

std::string first_bad_token(const TrainBatch& batch, const MicroBatch& micro_batch,
                            std::span<const NamedColumn> columns) {
  for (const NamedColumn& column : columns) {
    if (!column.x_T.defined()) continue;
    const Tensor bad = at::isfinite(column.x_T.detach()).logical_not().nonzero();
    if (bad.size(0) == 0) continue;
    int64_t token = bad[0][0].item<int64_t>();
    const auto value = column.x_T[token].item<double>();
    for (const int64_t i : micro_batch.samples) {
      const TrainSample& sample = batch.samples[i];
      if (token < sample.response_length()) {
        return fmt::format("sample {}, response token {} (id {}): {} is {}", sample.ordinal, token,
                           sample.tokens[sample.prompt_length + token], column.name, value);
      }
      token -= sample.response_length();
    }
    throw BugError("a column has more tokens than its samples");
  }
  return {};
}

std::string ordinals_of(const TrainBatch& batch, const Indices& samples) {
  std::vector<int64_t> ordinals;
  for (const int64_t i : samples) ordinals.push_back(batch.samples[i].ordinal);
  return fmt::format("{}", fmt::join(ordinals, ", "));
}

std::string name_bad_gradients(const model::Weights& weights) {
  std::vector<std::string> names;
  for (const model::NamedWeight& weight : weights.tensors()) {
    const Tensor grad = model::Weights::view(weights.grad(), weight).contiguous();
    if (!std::isfinite(kernels::sum_of_squares(grad))) names.push_back(weight.name);
  }
  const std::size_t shown = std::min<std::size_t>(names.size(), 3);
  std::string text = fmt::format("{}", fmt::join(names.begin(), names.begin() + shown, ", "));
  if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

}  // namespace slime::train
