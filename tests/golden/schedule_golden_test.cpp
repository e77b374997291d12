// Golden cases about batches: flattening samples, packing, balancing, FLOPs.

#include <fmt/format.h>

#include <set>

#include "core/error.h"
#include "golden.h"
#include "golden_flags.h"
#include "model/layers/gated_mlp.h"
#include "model/layers/grouped_query_attention.h"
#include "model/layers/latent_attention.h"
#include "train/flops.h"
#include "train/karmarkar_karp.h"
#include "train/schedule.h"
#include "train/train_batch.h"

namespace slime::golden {
namespace {

using namespace train;

model::Costs latent_costs(const json::object& p, const model::GroupedQueryShape& full) {
  return model::latent_costs(
      {.hidden = full.hidden,
       .num_heads = full.num_heads,
       .rotary_dim = integer(p, "qk_pos_emb_head_dim"),
       .latent = {.kv_rank = integer(p, "kv_lora_rank"),
                  .q_rank = has(p, "q_lora_rank") ? integer(p, "q_lora_rank") : 0,
                  .plain_dim = integer(p, "qk_head_dim"),
                  .value_dim = integer(p, "v_head_dim")}});
}

FlopsModel flops_model(const json::object& p) {
  model::GroupedQueryShape attention;
  attention.hidden = integer(p, "hidden_size");
  attention.num_heads = integer(p, "num_attention_heads");
  attention.num_kv_heads = integer(p, "num_query_groups");
  attention.head_dim =
      has(p, "kv_channels") ? integer(p, "kv_channels") : attention.hidden / attention.num_heads;
  const model::Costs mixer = flag(p, "multi_latent_attention")
                                 ? latent_costs(p, attention)
                                 : model::grouped_query_costs(attention);
  // Of the experts that a token visits, shared ones included.
  int64_t experts_width = 0;
  if (has(p, "num_experts")) {
    experts_width = integer(p, "moe_ffn_hidden_size") * integer(p, "moe_router_topk");
    if (has(p, "moe_shared_expert_intermediate_size"))
      experts_width += integer(p, "moe_shared_expert_intermediate_size");
  }
  int64_t per_token = 2 * attention.hidden * integer(p, "vocab_size"), per_pair = 0;
  const int64_t num_layers = integer(p, "num_layers");
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    bool is_moe = has(p, "num_experts");
    if (is_moe && has(p, "moe_layer_freq")) {
      const auto& frequency = p.at("moe_layer_freq");
      is_moe = frequency.is_array() ? frequency.at(layer).to_number<int64_t>() > 0
                                    : layer % frequency.to_number<int64_t>() == 0;
    }
    const int64_t width = is_moe ? experts_width : integer(p, "ffn_hidden_size");
    const model::Costs block = mixer + model::gated_mlp_costs({attention.hidden, width});
    per_token += block.flops_per_token;
    per_pair += block.flops_per_pair;
  }
  return {static_cast<double>(per_token), static_cast<double>(per_pair)};
}

GOLDEN_TEST(Flops, "flops.json") {
  const double flops =
      forward_flops(flops_model(part(c, "params")), integers(part(c, "inputs").at("seqlens")));
  expect_close(flops, part(c, "expected").at("forward_flops"), "forward_flops", at::kDouble);
}

GOLDEN_TEST(Packing, "packing.json") {
  const auto sizes = integers(part(c, "inputs").at("lengths"));
  const auto& expected = part(c, "expected");
  const auto bins = first_fit(sizes, integer(part(c, "params"), "max_tokens_per_bin"));
  if (has(expected, "bins")) {
    EXPECT_EQ(bins, partitions(expected.at("bins")));
  }
  if (has(expected, "expanded_bins")) {
    EXPECT_EQ(expand_bins(bins, sizes, integer(part(c, "params"), "target_bin_count")),
              partitions(expected.at("expanded_bins")));
  }
}

GOLDEN_TEST(KarmarkarKarp, "karmarkar_karp.json") {
  const auto& params = part(c, "params");
  EXPECT_EQ(partition_evenly(doubles(part(c, "inputs").at("weights")),
                             integer(params, "k_partitions"), flag(params, "equal_size")),
            partitions(part(c, "expected").at("partitions")));
}

GOLDEN_TEST(DataParallelSchedule, "dp_schedule.json") {
  const auto& params = part(c, "params");
  const auto& inputs = part(c, "inputs");
  const auto& expected = part(c, "expected");
  const auto make = [&] {
    const Words words = words_of(
        params, {"model", "dp_size", "cp_size", "vpp_size", "microbatch_group_size_per_vp_stage"});
    Words run = {"--rollout-batch-size",    json::serialize(params.at("global_batch_size")),
                 "--n-samples-per-prompt",  "1",
                 "--context-parallel-size", json::serialize(params.at("cp_size"))};
    int64_t stages = 1;
    if (integer(params, "vpp_size") > 1) {
      // A group is as many micro-batches as there are stages.
      stages = integer(params, "microbatch_group_size_per_vp_stage");
      run.insert(run.end(), {"--pipeline-model-parallel-size", fmt::format("{}", stages),
                             "--num-virtual-stages-per-pipeline-rank",
                             json::serialize(params.at("vpp_size"))});
    }
    run.insert(run.end(), {"--actor-num-gpus-per-node",
                           fmt::format("{}", integer(params, "dp_size") *
                                                 integer(params, "cp_size") * stages)});
    return make_schedule(integers(inputs.at("total_lengths")), integers(inputs.at("rollout_ids")),
                         setup_of(words, run).train.batching, flops_model(part(params, "model")));
  };
  if (has(expected, "error")) {
    EXPECT_THROW(make(), ConfigError);
    return;
  }
  const Schedule schedule = make();
  EXPECT_EQ(schedule.samples, partitions(expected.at("partitions")));
  const auto& ranks = expected.at("micro_batch_indices").as_array();
  ASSERT_EQ(schedule.micro_batches.size(), ranks.size());
  for (std::size_t r = 0; r < ranks.size(); ++r)
    EXPECT_EQ(schedule.micro_batches[r], partitions(ranks[r]));
  EXPECT_EQ(schedule.num_micro_batches, integers(expected.at("num_microbatches")));
  EXPECT_EQ(schedule.global_batch_sizes, integers(expected.at("global_batch_sizes")));
}

Sample sample_of(const json::object& object, int64_t group) {
  Sample sample;
  sample.ordinal = integer(object, "index");
  sample.group = group;
  sample.reward = number(object, "reward");
  for (const int64_t id : integers(object.at("tokens")))
    sample.tokens.push_back(static_cast<TokenId>(id));
  sample.prompt_length =
      static_cast<int64_t>(sample.tokens.size()) - integer(object, "response_length");
  if (has(object, "loss_mask")) {
    for (const int64_t m : integers(object.at("loss_mask")))
      sample.loss_mask.push_back(static_cast<uint8_t>(m));
  }
  if (has(object, "rollout_id")) sample.rollout_id = integer(object, "rollout_id");
  if (has(object, "status")) sample.status = *status_from_string(word(object, "status"));
  if (has(object, "metadata")) sample.metadata = part(object, "metadata");
  sample.remove_sample = flag(object, "remove_sample");
  return sample;
}

GOLDEN_TEST(SamplesToTrainData, "samples_to_train_data.json") {
  const auto& params = part(c, "params");
  const auto& samples = part(c, "inputs").at("samples").as_array();
  const auto& expected = part(c, "expected");
  const int64_t n = integer(params, "n_samples_per_prompt");
  const bool is_regular =
      static_cast<int64_t>(samples.size()) == n * integer(params, "rollout_batch_size");
  std::vector<Group> groups;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const int64_t group = is_regular ? static_cast<int64_t>(i) / n : 0;
    if (groups.empty() || groups.back().ordinal != group) groups.push_back({group, {}});
    groups.back().samples.push_back(sample_of(samples[i].as_object(), group));
  }
  const TrainBatch batch = make_train_batch(groups, setup_of(words_of(params)).batch);
  ASSERT_EQ(batch.samples.size(), samples.size());
  const auto masks = partitions(expected.at("loss_masks"));
  // Where an execution became several samples the original of these files took the mean over samples, and
  // here it counts once: of rewards 1, 1 of one execution and 0 of another the baseline is 1/2, not 2/3.
  std::set<int64_t> executions;
  for (const TrainSample& sample : batch.samples) executions.insert(sample.rollout_id);
  const bool has_siblings = executions.size() < batch.samples.size();
  const json::value rewards = has_siblings ? json::value{0.5, 0.5, -0.5} : expected.at("rewards");
  for (std::size_t i = 0; i < batch.samples.size(); ++i) {
    const TrainSample& got = batch.samples[i];
    EXPECT_EQ(got.response_length(), expected.at("response_lengths").at(i).to_number<int64_t>());
    expect_close(got.reward, rewards.at(i), "reward", at::kDouble);
    expect_close(got.raw_reward, expected.at("raw_reward").at(i), "raw_reward", at::kDouble);
    EXPECT_EQ(got.truncated, expected.at("truncated").at(i).to_number<int64_t>() == 1);
    EXPECT_EQ(got.ordinal, expected.at("sample_indices").at(i).to_number<int64_t>());
    EXPECT_EQ(got.rollout_id, expected.at("rollout_ids").at(i).to_number<int64_t>());
    EXPECT_EQ(std::vector<int64_t>(got.loss_mask.begin(), got.loss_mask.end()), masks[i]);
    EXPECT_EQ(got.rollout_mask_total, expected.at("rollout_mask_sums").at(i).to_number<int64_t>());
    EXPECT_EQ(got.source_name, std::string(expected.at("source_names").at(i).as_string()));
  }
}

}  // namespace
}  // namespace slime::golden
