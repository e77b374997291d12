#include "tinker/training_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <span>
#include <string_view>

#include "core/error.h"

namespace slime::tinker {
namespace {

using Inputs = std::map<std::string, InputColumn>;

/// A column of `count` numbers; null where there is none. Throws ConfigError.
const InputColumn* column(const Inputs& inputs, std::string_view name, std::size_t count,
                          const std::string& where) {
  const auto found = inputs.find(std::string(name));
  if (found == inputs.end()) return nullptr;
  if (found->second.shape.size() > 1) {
    throw ConfigError(
        fmt::format("{}.{}: has two dimensions; one target for each position is what there is here",
                    where, name));
  }
  const std::size_t size =
      std::visit([](const auto& values) { return values.size(); }, found->second.values);
  if (size != count)
    throw ConfigError(
        fmt::format("{}.{}: has {} numbers, and there are {} positions", where, name, size, count));
  return &found->second;
}

std::vector<int64_t> integers(const Inputs& inputs, std::string_view name, std::size_t count,
                              const std::string& where) {
  const InputColumn* given = column(inputs, name, count, where);
  if (given == nullptr) return {};
  const auto* values = std::get_if<std::vector<int64_t>>(&given->values);
  if (values == nullptr)
    throw ConfigError(fmt::format("{}.{}: should be whole numbers", where, name));
  return *values;
}

std::vector<float> floats(const Inputs& inputs, std::string_view name, std::size_t count,
                          const std::string& where) {
  const InputColumn* given = column(inputs, name, count, where);
  if (given == nullptr) return {};
  std::vector<float> values = std::visit(
      [](const auto& each) {
        std::vector<float> made;
        for (const auto value : each) made.push_back(static_cast<float>(value));
        return made;
      },
      given->values);
  const auto bad = std::ranges::find_if_not(values, [](float x) { return std::isfinite(x); });
  if (bad != values.end())
    throw ConfigError(fmt::format("{}.{}[{}]: is not finite", where, name, bad - values.begin()));
  return values;
}

void require(const std::vector<float>& values, bool is_needed, const std::string& loss,
             std::string_view name, const std::string& where) {
  if (is_needed && values.empty())
    throw ConfigError(fmt::format("{}.{}: is missing, and {} needs it", where, name, loss));
}

bool all_zero(const std::vector<float>& values) {
  return std::ranges::all_of(values, [](float x) { return x == 0; });
}

/// Which targets train.
std::vector<uint8_t> mask_of(const Inputs& inputs, const train::GivenColumns& columns,
                             const TokenLoss& loss, std::size_t count, const std::string& where) {
  for (const std::string_view name : {"mask", "sequence_ratio_mask"}) {
    const std::vector<float> given = floats(inputs, name, count, where);
    if (given.empty()) continue;
    std::vector<uint8_t> mask;
    for (const float x : given) mask.push_back(x != 0 ? 1 : 0);
    return mask;
  }
  std::vector<uint8_t> mask(count, 1);
  if (loss.name == "dro") return mask;  // its second term is of all tokens
  const std::vector<float>& counts =
      loss.needs.weights || columns.advantages.empty() ? columns.weights : columns.advantages;
  for (std::size_t i = 0; i < counts.size(); ++i) mask[i] = counts[i] != 0 ? 1 : 0;
  return mask;
}

void read_datum(const Datum& datum, std::size_t index, const TokenLoss& loss,
                const ModelLimits& limits, train::GivenBatch& batch) {
  const std::string where = fmt::format("data[{}]", index);
  std::vector<TokenId> tokens = datum.tokens;
  if (tokens.empty()) throw ConfigError(where + ".model_input: has no token");
  const Inputs& inputs = datum.inputs;
  const std::size_t count =
      datum.num_scored ? static_cast<std::size_t>(*datum.num_scored) : tokens.size();
  const std::string fields = where + ".loss_fn_inputs";
  const std::vector<int64_t> targets = integers(inputs, "target_tokens", count, fields);
  if (targets.empty()) throw ConfigError(fields + ".target_tokens: is missing");
  const std::size_t first = tokens.size() - count;
  for (std::size_t i = 0; i < count; ++i) {
    if (targets[i] < 0 || targets[i] >= limits.vocab_size)
      throw ConfigError(fmt::format("{}.target_tokens[{}]: {} is no token; the vocabulary has {}",
                                    fields, i, targets[i], limits.vocab_size));
  }
  tokens.push_back(static_cast<TokenId>(targets.back()));
  const bool are_next_tokens = std::ranges::equal(targets, std::span(tokens).subspan(first + 1));
  if (static_cast<int64_t>(tokens.size()) > limits.max_positions)
    throw ConfigError(fmt::format("{}: {} tokens, and the model has {} positions", where,
                                  tokens.size(), limits.max_positions));
  train::GivenColumns columns{.advantages = floats(inputs, "advantages", count, fields),
                              .weights = floats(inputs, "weights", count, fields)};
  const std::vector<float> sampler = floats(inputs, "logprobs", count, fields);
  require(columns.advantages, loss.needs.advantages, loss.name, "advantages", fields);
  require(columns.weights, loss.needs.weights, loss.name, "weights", fields);
  require(sampler, loss.needs.log_probs, loss.name, "logprobs", fields);
  columns.old_log_probs =
      loss.needs.log_probs ? sampler : floats(inputs, "old_logprobs", count, fields);
  train::TrainSample sample;
  sample.ordinal = static_cast<int64_t>(index);
  sample.group = sample.ordinal;
  sample.rollout_id = sample.ordinal;
  sample.prompt_length = static_cast<int64_t>(first) + 1;
  sample.tokens = std::move(tokens);
  if (!are_next_tokens) sample.targets.assign(targets.begin(), targets.end());
  sample.loss_mask = mask_of(inputs, columns, loss, count, fields);
  sample.rollout_log_probs = sampler;
  sample.rollout_mask_total =
      std::accumulate(sample.loss_mask.begin(), sample.loss_mask.end(), int64_t{0});
  // What micro-batches without a gradient are told apart by.
  sample.reward = !columns.advantages.empty() && all_zero(columns.advantages) ? 0 : 1;
  batch.batch.samples.push_back(std::move(sample));
  batch.columns.push_back(std::move(columns));
}

}  // namespace

train::GivenBatch read_batch(const TrainingBody& body, const TokenLoss& loss,
                             const ModelLimits& limits) {
  train::GivenBatch batch;
  for (std::size_t i = 0; i < body.data.size(); ++i)
    read_datum(body.data[i], i, loss, limits, batch);
  // Where some bring old log-probs all have to: a ratio is to one policy.
  const auto brings = std::ranges::count_if(
      batch.columns, [](const train::GivenColumns& each) { return !each.old_log_probs.empty(); });
  if (brings != 0 && static_cast<std::size_t>(brings) != batch.columns.size())
    throw ConfigError("old_logprobs: some datums have them and others have not");
  const auto weighs = std::ranges::count_if(
      batch.columns, [](const train::GivenColumns& each) { return !each.weights.empty(); });
  if (weighs != 0 && static_cast<std::size_t>(weighs) != batch.columns.size())
    throw ConfigError("weights: some datums have them and others have not");
  batch.batch.count_executions();
  return batch;
}

}  // namespace slime::tinker
