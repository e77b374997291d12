#include "train/micro_batch.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <unordered_set>

#include "algo/packed.h"
#include "core/error.h"
#include "core/sampler_record.h"
#include "train/draft_training.h"

namespace slime::train {
namespace {

Sequence sequence_of(const TrainSample& sample, const PlanOptions& options) {
  Sequence sequence{.tokens = sample.tokens,
                    .prompt_length = sample.prompt_length,
                    .media = sample.media,
                    .targets = sample.targets};
  if (options.rotary_switch > 0 && sample.total_length() > options.rotary_switch) {
    sequence.rotary_offset = options.rotary_offset;
    if (options.scores_as_sampled) sequence.num_sampled_short = options.rotary_switch;
  }
  if (options.replays_experts_of == nullptr || sample.routed_experts.empty()) return sequence;
  sequence.experts = sample.routed_experts;
  sequence.expert_width = options.replays_experts_of->routing_width();
  return sequence;
}

/// Throws ConfigError for choices that no router of the model makes.
void check_experts(const TrainSample& sample, const model::ModelConfig& model) {
  const auto fail = [&](const std::string& what) {
    throw ConfigError(
        fmt::format("use-rollout-routing-replay: sample {} {}", sample.ordinal, what));
  };
  const std::vector<int16_t>& choices = sample.routed_experts;
  const auto trained = std::ranges::count(sample.loss_mask, 1);
  if (choices.empty() && trained == 0) return;
  const int64_t width = model.routing_width(), rows = sample.total_length() - 1;
  if (static_cast<int64_t>(choices.size()) != rows * width) {
    fail(fmt::format("has {} choices of experts; {} rows of {} layers and {} visits were expected",
                     choices.size(), rows, model.num_layers, model.experts.per_token));
  }
  for (const int16_t expert : choices) {
    if (expert < 0 || expert >= model.experts.count)
      fail(fmt::format("visits expert {} of {}", expert, model.experts.count));
  }
  const int64_t visits = model.experts.per_token;
  for (int64_t layer = 0; layer < model.num_layers && visits > 1; ++layer) {
    if (!model.experts.are_in(layer)) continue;
    bool is_zero = true;
    for (int64_t row = 0; row < rows && is_zero; ++row) {
      const auto first = choices.begin() + row * width + layer * visits;
      is_zero = std::all_of(first, first + visits, [](int16_t expert) { return expert == 0; });
    }
    if (is_zero) fail(fmt::format("visits expert 0 alone in layer {}", layer));
  }
}

/// The nucleus of each response token of these samples, end to end.
kernels::KeptTokens kept_tokens(std::span<const TrainSample> samples, const Indices& members) {
  std::vector<int64_t> ids, offsets{0};
  for (const int64_t i : members) {
    const TrainSample& sample = samples[i];
    if (sample.loss_mask.empty()) continue;  // nothing was sampled, so nothing is recorded
    if (sample.top_p_offsets.size() != sample.loss_mask.size() + 1) {
      throw ConfigError(fmt::format(
          "rollout-top-p: sample {} has no top-p ids for its {} response tokens, so its log-probs "
          "cannot be replayed",
          sample.ordinal, sample.response_length()));
    }
    const int64_t base = offsets.back();
    for (std::size_t t = 1; t < sample.top_p_offsets.size(); ++t)
      offsets.push_back(base + sample.top_p_offsets[t]);
    ids.insert(ids.end(), sample.top_p_ids.begin(), sample.top_p_ids.end());
  }
  return {at::tensor(ids, at::kLong), at::tensor(offsets, at::kLong)};
}

/// What the sampler knew of each response token of these samples, end to end.
void add_centered(std::span<const TrainSample> samples, const Indices& members,
                  const PlanOptions& options, MicroBatch& out) {
  std::vector<int64_t> ids, offsets{0};
  std::vector<double> log_probs;
  for (const int64_t i : members) {
    const TrainSample& sample = samples[i];
    const bool lists_support = options.replays_top_p;
    const SamplerRecord record{
        .tokens = std::span(sample.tokens).last(sample.loss_mask.size()),
        .log_probs = sample.rollout_log_probs,
        .loss_mask = sample.loss_mask,
        .ids = lists_support ? sample.top_p_ids : sample.topk_ids,
        .id_log_probs = lists_support ? sample.top_p_log_probs : sample.topk_log_probs};
    const std::string problem = lists_support ? problem_of_support(record, sample.top_p_offsets)
                                              : problem_of_head(record, options.centers_scores);
    if (!problem.empty()) {
      throw ConfigError(fmt::format("use-score-centering: sample {} {}", sample.ordinal, problem));
    }
    const int64_t base = offsets.back();
    for (int64_t t = 1; t <= sample.response_length(); ++t) {
      offsets.push_back(base +
                        (lists_support ? sample.top_p_offsets[t] : t * options.centers_scores));
    }
    ids.insert(ids.end(), record.ids.begin(), record.ids.end());
    log_probs.insert(log_probs.end(), record.id_log_probs.begin(), record.id_log_probs.end());
  }
  out.centered = {at::tensor(ids, at::kLong), at::tensor(offsets, at::kLong)};
  out.sampler_A = at::tensor(log_probs, options.dtype);
}

MicroBatch make_micro_batch(std::span<const TrainSample> samples, Indices members,
                            const PlanOptions& options) {
  MicroBatch out;
  std::vector<Sequence> sequences;
  std::vector<int64_t> lengths;
  std::vector<uint8_t> mask;
  std::vector<double> totals;
  for (const int64_t i : members) {
    const TrainSample& sample = samples[i];
    if (options.replays_experts_of != nullptr) check_experts(sample, *options.replays_experts_of);
    sequences.push_back(sequence_of(sample, options));
    lengths.push_back(sample.response_length());
    mask.insert(mask.end(), sample.loss_mask.begin(), sample.loss_mask.end());
    totals.push_back(static_cast<double>(sample.rollout_mask_total));
  }
  if (options.replays_top_p) out.kept = kept_tokens(samples, members);
  if (options.centers_scores > 0) add_centered(samples, members, options, out);
  out.attends_in_pages = options.attends_in_pages;
  out.orders_backward = options.orders_backward;
  out.samples = std::move(members);
  out.packed = pack(sequences, options.packing);
  out.starts = algo::make_starts(lengths);
  out.trained_T = at::tensor(mask, at::kByte).to(at::kBool);
  out.weight_T = algo::token_weights(options.reduction, out.trained_T,
                                     at::tensor(totals, options.dtype), out.starts);
  return out;
}

/// Micro-batches of these samples within the token budget, as indices into `samples`; common
/// prefixes stay together.
std::vector<Indices> bins_of(std::span<const TrainSample> samples, const Indices& members,
                             const PlanOptions& options) {
  const int64_t capacity = options.batching.max_tokens_per_gpu;
  std::vector<Sequence> sequences;
  std::vector<int64_t> lengths;
  for (const int64_t i : members) {
    sequences.push_back(sequence_of(samples[i], options));
    lengths.push_back(samples[i].total_length());
  }
  std::vector<Indices> bins = options.packing.share_prefixes ? pack_into_bins(sequences, capacity)
                                                             : first_fit(lengths, capacity);
  for (Indices& bin : bins) {
    for (int64_t& i : bin) i = members[i];
  }
  return bins;
}

std::vector<Indices> dynamic_bins(std::span<const TrainSample> samples, Indices step,
                                  const PlanOptions& options) {
  if (!options.separates_zero_rewards) return bins_of(samples, step, options);
  const auto middle = std::stable_partition(step.begin(), step.end(),
                                            [&](int64_t i) { return samples[i].reward != 0; });
  std::vector<Indices> bins = bins_of(samples, Indices(step.begin(), middle), options);
  std::vector<Indices> others = bins_of(samples, Indices(middle, step.end()), options);
  bins.insert(bins.end(), std::make_move_iterator(others.begin()),
              std::make_move_iterator(others.end()));
  return bins;
}

/// Pairs as units: in order, as many to a micro-batch as its budget takes, at least one; and as
/// many micro-batches for each rank, as far as there are pairs.
std::vector<Indices> pair_bins(std::span<const TrainSample> samples, const Indices& step,
                               const BatchingConfig& batching) {
  const bool counts_tokens = batching.use_dynamic_batch_size;
  std::vector<int64_t> sizes;  // of each pair
  for (std::size_t i = 0; i + 1 < step.size(); i += 2) {
    sizes.push_back(
        counts_tokens ? samples[step[i]].total_length() + samples[step[i + 1]].total_length() : 2);
  }
  const int64_t budget = counts_tokens ? batching.max_tokens_per_gpu : batching.micro_batch_size;
  std::vector<Indices> bins;  // of pairs
  int64_t fill = 0;
  for (std::size_t pair = 0; pair < sizes.size(); ++pair) {
    if (bins.empty() || fill + sizes[pair] > budget) {
      bins.emplace_back();
      fill = 0;
    }
    bins.back().push_back(static_cast<int64_t>(pair));
    fill += sizes[pair];
  }
  const auto count = static_cast<int64_t>(bins.size());
  bins = expand_bins(std::move(bins), sizes, (count + batching.dp - 1) / batching.dp * batching.dp);
  for (Indices& bin : bins) {
    Indices members;
    for (const int64_t pair : bin)
      members.insert(members.end(), {step[2 * pair], step[2 * pair + 1]});
    bin = std::move(members);
  }
  return bins;
}

bool keeps_siblings_together(const PlanOptions& options) {
  return options.batching.use_dynamic_batch_size && !options.batching.balance_by_flops &&
         options.packing.share_prefixes && options.batching.dp == 1;
}

}  // namespace

PlanOptions with_sharing_that_pays(std::span<const TrainSample> samples, PlanOptions options) {
  PackingOptions& packing = options.packing;
  if (!packing.share_prefixes || packing.level_cost == 0) return options;
  std::vector<Sequence> sequences;
  for (const TrainSample& sample : samples) sequences.push_back(sequence_of(sample, options));
  packing.share_prefixes = sharing_pays(sequences, packing);
  return options;
}

StepPlan make_step(std::span<const TrainSample> samples, std::vector<Indices> micro_batches,
                   const PlanOptions& options) {
  StepPlan plan;
  std::unordered_set<int64_t> executions;
  double tokens = 0;
  int64_t predictions = 0;
  for (Indices& members : micro_batches) {
    for (const int64_t i : members) {
      executions.insert(samples[i].rollout_id);
      predictions += num_predictions(samples[i].total_length(), std::span(samples[i].loss_mask));
    }
    plan.micro_batches.push_back(make_micro_batch(samples, std::move(members), options));
    tokens += algo::token_denominator(plan.micro_batches.back().trained_T,
                                      plan.micro_batches.back().starts);
  }
  plan.num_executions = static_cast<int64_t>(executions.size());
  plan.num_micro_batches =
      std::max<int64_t>(1, std::ranges::count_if(plan.micro_batches, &MicroBatch::has_response));
  plan.num_predictions = std::max<int64_t>(1, predictions);
  plan.denominator = options.reduction == algo::Reduction::kPerToken
                         ? tokens
                         : static_cast<double>(plan.num_executions);
  return plan;
}

std::vector<std::vector<std::vector<Indices>>> cut_steps(const TrainBatch& batch,
                                                         const PlanOptions& options,
                                                         const FlopsModel& flops) {
  const int64_t dp = options.batching.dp;
  std::vector<std::vector<std::vector<Indices>>> steps;
  if (options.keeps_pairs || keeps_siblings_together(options)) {
    for (const Indices& step :
         split_into_steps(batch.rollout_ids(), options.batching.global_batch_size)) {
      std::vector<Indices> bins = options.keeps_pairs
                                      ? pair_bins(batch.samples, step, options.batching)
                                      : dynamic_bins(batch.samples, step, options);
      std::vector<std::vector<Indices>>& ranks = steps.emplace_back(dp);
      for (std::size_t b = 0; b < bins.size(); ++b) ranks[b % dp].push_back(std::move(bins[b]));
    }
    return steps;
  }
  const Schedule schedule =
      make_schedule(batch.total_lengths(), batch.rollout_ids(), options.batching, flops);
  std::size_t next = 0;
  for (const int64_t num_micro_batches : schedule.num_micro_batches) {
    std::vector<std::vector<Indices>>& ranks = steps.emplace_back(dp);
    for (int64_t rank = 0; rank < dp; ++rank) {
      for (int64_t i = 0; i < num_micro_batches; ++i) {
        Indices bin = schedule.micro_batches[rank][next + i];
        for (int64_t& position : bin) position = schedule.samples[rank][position];
        ranks[rank].push_back(std::move(bin));
      }
    }
    next += num_micro_batches;
  }
  return steps;
}

std::vector<StepPlan> plan_steps(const TrainBatch& batch, const PlanOptions& given,
                                 const FlopsModel& flops) {
  check(given.batching.dp == 1, "one rank trains all of a batch; of several each has a share");
  const PlanOptions options = with_sharing_that_pays(batch.samples, given);
  std::vector<StepPlan> plans;
  for (std::vector<std::vector<Indices>>& step : cut_steps(batch, options, flops))
    plans.push_back(make_step(batch.samples, std::move(step.front()), options));
  return plans;
}

StepPlan plan_pass(std::span<const TrainSample> samples, const PlanOptions& given) {
  const PlanOptions options = with_sharing_that_pays(samples, given);
  Indices all(samples.size());
  std::iota(all.begin(), all.end(), 0);
  if (options.keeps_pairs)
    return make_step(samples, pair_bins(samples, all, options.batching), options);
  if (options.batching.use_dynamic_batch_size) {
    return make_step(samples, dynamic_bins(samples, all, options), options);
  }
  std::vector<Indices> bins;
  for (const int64_t i : all) {
    if (i % options.batching.micro_batch_size == 0) bins.emplace_back();
    bins.back().push_back(i);
  }
  return make_step(samples, std::move(bins), options);
}

void TokenColumn::put(const MicroBatch& micro_batch, const Tensor& x_T) {
  const auto* start = micro_batch.starts.const_data_ptr<int64_t>();
  for (std::size_t r = 0; r < micro_batch.samples.size(); ++r) {
    per_sample_[micro_batch.samples[r]] = x_T.slice(0, start[r], start[r + 1]);
  }
}

Tensor TokenColumn::gather(const Indices& samples) const {
  std::vector<Tensor> parts;
  for (const int64_t i : samples) {
    if (!per_sample_[i].defined()) return {};
    parts.push_back(per_sample_[i]);
  }
  return parts.empty() ? Tensor() : at::cat(parts);
}

Tensor TokenColumn::gather_known(const MicroBatch& micro_batch) const {
  const auto defined = std::ranges::find_if(micro_batch.samples,
                                            [this](int64_t i) { return per_sample_[i].defined(); });
  if (defined == micro_batch.samples.end()) return {};
  const auto options = per_sample_[*defined].options();
  const auto* start = micro_batch.starts.const_data_ptr<int64_t>();
  std::vector<Tensor> parts;
  for (std::size_t r = 0; r < micro_batch.samples.size(); ++r) {
    const Tensor& own = per_sample_[micro_batch.samples[r]];
    parts.push_back(own.defined() ? own : at::zeros({start[r + 1] - start[r]}, options));
  }
  return at::cat(parts);
}

Tensor TokenColumn::known(const MicroBatch& micro_batch) const {
  const auto* start = micro_batch.starts.const_data_ptr<int64_t>();
  std::vector<Tensor> parts;
  for (std::size_t r = 0; r < micro_batch.samples.size(); ++r) {
    parts.push_back(at::full({start[r + 1] - start[r]},
                             per_sample_[micro_batch.samples[r]].defined(), at::kBool));
  }
  return parts.empty() ? Tensor() : at::cat(parts);
}

std::vector<int64_t> lengths_of(const TrainBatch& batch, std::span<const StepPlan> plans) {
  std::vector<int64_t> lengths;
  for (const StepPlan& plan : plans) {
    for (const MicroBatch& micro_batch : plan.micro_batches) {
      for (const int64_t i : micro_batch.samples)
        lengths.push_back(batch.samples[i].total_length());
    }
  }
  return lengths;
}

}  // namespace slime::train
