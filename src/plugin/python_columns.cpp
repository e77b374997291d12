#include "plugin/python_columns.h"

#include <ATen/ATen.h>

#include <string>
#include <utility>
#include <vector>

#include "plugin/batch_words.h"

namespace slime::plugin {
namespace {

/// A column of the table by the name that users know it by.
struct UsersColumn {
  const char* name;
  Tensor train::UsersTable::*column;
};

constexpr UsersColumn kUsersColumns[] = {
    {"log_probs", &train::UsersTable::old_T},
    {"ref_log_probs", &train::UsersTable::ref_T},
    {"rollout_log_probs", &train::UsersTable::engine_T},
    {"teacher_log_probs", &train::UsersTable::teacher_T},
    {"values", &train::UsersTable::value_T},
    {"kl", &train::UsersTable::kl_T},
    {"advantages", &train::UsersTable::advantage_T},
    {"returns", &train::UsersTable::return_T},
};

/// `rollout_data`, and where each of its columns lies.
struct RolloutData {
  json::object words;
  std::vector<std::pair<const UsersColumn*, Tensor>> shared;
  Tensor loss_masks;  // int32
};

RolloutData rollout_data(const train::UsersTable& table, SharedTensors& tensors) {
  RolloutData data;
  data.words = batch_words(table.batch, table.samples, tensors);
  // There the lists are of the samples; a row of all tokens is the micro-batch's.
  data.words["tokens"] = data.words["unconcat_tokens"];
  data.words.erase("unconcat_tokens");
  json::array rewards, raw_rewards, truncated, indices, rollout_ids;
  for (const int64_t i : table.samples) {
    const train::TrainSample& sample = table.batch.samples[i];
    rewards.emplace_back(sample.reward);
    raw_rewards.emplace_back(sample.raw_reward);
    truncated.emplace_back(sample.truncated ? 1 : 0);
    indices.emplace_back(sample.ordinal);
    rollout_ids.emplace_back(sample.rollout_id);
  }
  data.words["rewards"] = std::move(rewards);
  data.words["raw_reward"] = std::move(raw_rewards);
  data.words["truncated"] = std::move(truncated);
  data.words["sample_indices"] = std::move(indices);
  data.words["rollout_ids"] = std::move(rollout_ids);
  const SharedTensor masks = tensors.put(table.trained_T.to(at::kInt));
  data.words["loss_masks"] = rows_word(masks);
  data.loss_masks = masks.tensor;
  for (const UsersColumn& column : kUsersColumns) {
    if (!(table.*column.column).defined()) continue;
    const SharedTensor shared = tensors.put(table.*column.column);
    data.words[column.name] = rows_word(shared);
    data.shared.emplace_back(&column, shared.tensor);
  }
  return data;
}

}  // namespace

train::UsersAdvantageFn make_python_advantage(TrainerHost& host, SharedTensors& tensors, int hook) {
  return [&host, &tensors, hook](const train::UsersTable& table) -> algo::Advantages {
    tensors.begin();
    RolloutData data = rollout_data(table, tensors);
    const auto dtype = table.kl_T.scalar_type();
    const SharedTensor advantages = tensors.space(table.kl_T.sizes(), dtype);
    const SharedTensor returns = tensors.space(table.kl_T.sizes(), dtype);
    host.call(hook, subject_of(table.batch, table.samples),
              {{"rollout_data", std::move(data.words)},
               {"outputs", {{"advantages", advantages.word}, {"returns", returns.word}}}});
    return {copy_on_host(advantages.tensor), copy_on_host(returns.tensor)};
  };
}

train::PostprocessFn make_python_postprocess(TrainerHost& host, SharedTensors& tensors, int hook,
                                             RolloutIdFn rollout_id) {
  return [&host, &tensors, hook, rollout_id = std::move(rollout_id)](int64_t rollouts_done,
                                                                     train::UsersTable& table) {
    tensors.begin();
    RolloutData data = rollout_data(table, tensors);
    host.call(hook, subject_of(table.batch, table.samples),
              {{"rollout_id", rollout_id(rollouts_done)}, {"rollout_data", std::move(data.words)}});
    table.trained_T = copy_on_host(data.loss_masks).to(at::kBool);
    for (const auto& [column, shared] : data.shared) table.*column->column = copy_on_host(shared);
  };
}

}  // namespace slime::plugin
