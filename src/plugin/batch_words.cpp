#include "plugin/batch_words.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

namespace slime::plugin {
namespace {

constexpr std::size_t kNamedSamples = 8;

json::object rows_by(const SharedTensor& flat, const char* lengths) {
  return {{"rows", flat.word}, {"by", lengths}};
}

}  // namespace

json::object batch_words(const train::TrainBatch& batch, std::span<const int64_t> samples,
                         SharedTensors& tensors) {
  json::array total_lengths, response_lengths, mask_sums;
  int64_t num_tokens = 0;
  for (const int64_t i : samples) {
    const train::TrainSample& sample = batch.samples[i];
    total_lengths.emplace_back(sample.total_length());
    response_lengths.emplace_back(sample.response_length());
    mask_sums.emplace_back(sample.rollout_mask_total);
    num_tokens += sample.total_length();
  }
  const Tensor ids = at::empty({num_tokens}, at::kLong);
  auto* id = ids.mutable_data_ptr<int64_t>();
  for (const int64_t i : samples) id = std::ranges::copy(batch.samples[i].tokens, id).out;
  const SharedTensor tokens = tensors.put(ids);
  json::object one_row = tokens.word;
  one_row["shape"] = json::array{1, num_tokens};
  return {{"tokens", std::move(one_row)},
          {"unconcat_tokens", rows_by(tokens, "total_lengths")},
          {"total_lengths", std::move(total_lengths)},
          {"response_lengths", std::move(response_lengths)},
          {"rollout_mask_sums", std::move(mask_sums)}};
}

json::value rows_word(const SharedTensor& column_T) {
  return rows_by(column_T, "response_lengths");
}

json::value rows_word(const Tensor& column_T, SharedTensors& tensors) {
  if (!column_T.defined()) return nullptr;
  return rows_word(tensors.put(column_T));
}

std::string subject_of(const train::TrainBatch& batch, std::span<const int64_t> samples) {
  std::vector<int64_t> ordinals;
  for (const int64_t i : samples.first(std::min(samples.size(), kNamedSamples)))
    ordinals.push_back(batch.samples[i].ordinal);
  std::string text = fmt::format("samples {}", fmt::join(ordinals, ", "));
  if (samples.size() > kNamedSamples)
    text += fmt::format(" and {} more", samples.size() - kNamedSamples);
  return text;
}

}  // namespace slime::plugin
