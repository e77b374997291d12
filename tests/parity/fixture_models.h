#pragma once

/// The golden models of tests/fixtures/models, opened for tests.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/json.h"
#include "kernels/linear_logprob.h"
#include "model/network.h"
#include "model/safetensors.h"

namespace slime::testing {

inline std::filesystem::path fixture_directory(const std::string& name) {
  return std::filesystem::path(SLIME_SOURCE_DIR) / "tests/fixtures/models" / name;
}

struct FixtureModel {
  std::filesystem::path directory;
  json::object golden;             // golden.json
  model::SafetensorsFile tensors;  // golden.safetensors

  explicit FixtureModel(const std::string& name)
      : directory(fixture_directory(name)),
        golden(read_json_file(directory / "golden.json").as_object()),
        tensors(directory / "golden.safetensors") {}

  std::vector<std::vector<int64_t>> sequences() const {
    return json::value_to<std::vector<std::vector<int64_t>>>(golden.at("sequences"));
  }
};

/// These sequences end to end as one batch without parents.
inline model::TokenBatch pack(const std::vector<std::vector<int64_t>>& sequences) {
  model::TokenBatch batch;
  std::vector<int64_t> ids, positions;
  for (const auto& sequence : sequences) {
    const auto begin = static_cast<int64_t>(ids.size());
    ids.insert(ids.end(), sequence.begin(), sequence.end());
    for (size_t i = 0; i < sequence.size(); ++i) positions.push_back(static_cast<int64_t>(i));
    batch.segments.push_back({begin, static_cast<int64_t>(ids.size()), -1});
  }
  batch.ids_T = at::tensor(ids, at::kLong);
  batch.positions_T = at::tensor(positions, at::kLong);
  return batch;
}

/// Log-probs of the last `count` tokens of a batch of one sequence, without gradients.
inline Tensor last_log_probs(model::Network& network, const model::TokenBatch& batch,
                             model::Attention& attention, int64_t count, double temperature = 1) {
  const at::NoGradGuard no_grad;
  const int64_t length = batch.num_tokens();
  const Tensor hidden_TH = network.forward(batch, attention);
  return kernels::linear_logprob(hidden_TH.slice(0, length - 1 - count, length - 1), network.head(),
                                 batch.ids_T.slice(0, length - count), {.temperature = temperature})
      .logprob_R;
}

/// Rows of a packed batch that predict something, and what they predict.
struct Targets {
  Tensor row_R, target_R;
};
inline Targets next_tokens(const model::TokenBatch& batch) {
  std::vector<Tensor> rows;
  for (const auto& segment : batch.segments)
    rows.push_back(at::arange(segment.begin, segment.end - 1, at::kLong));
  const Tensor row_R = at::cat(rows);
  return {row_R, batch.ids_T.index_select(0, row_R + 1)};
}

}  // namespace slime::testing
