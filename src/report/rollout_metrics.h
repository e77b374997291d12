#pragma once

/// Numbers about the samples of a rollout or an evaluation, named as the original names them (spec
/// section 19; docs/metrics.md lists them all). Rewards are those of executions (core/executions.h),
/// lengths those of samples.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/sample.h"
#include "report/metrics.h"

namespace slime::report {

/// NAME/mean, /median (of an even count: the mean of the middle two), /max, /min; nothing for no
/// values.
void add_statistics(Metrics& metrics, const std::string& name, std::vector<double> values);

/// Of all samples: response_len/{mean,median,max,min}, zero_std/count_<reward>,
/// prefix_cache_hit_rate, avg_cached_tokens_per_sample, truncated_ratio, repetition_frac
/// (core/repetition.h), top_p_kept_vocab_per_token; where engines draft, spec_accept_rate and
/// spec_accept_length, means over the samples. Names get `prefix` ("rollout/", "eval/aime/").
Metrics sample_metrics(std::span<const Group> groups, const std::string& reward_key,
                       const std::string& prefix);

/// --log-multi-turn: multi_turn/raw_response_length/... of whole responses (clip_ratio: share that
/// reached `longest`), multi_turn/wo_obs_response_length/... without what tools wrote, and
/// multi_turn/multi_turn_metric/round_number_... where metadata.round_number says it.
Metrics multi_turn_metrics(std::span<const Group> groups, int64_t longest);

/// --log-reward-category: share of each value of a field of the reward records, as
/// rollout/error_cat/<value>.
Metrics category_metrics(std::span<const Group> groups, const std::string& field);

/// Means of the numbers that reward records have beside `reward_key`, over the samples that have them, as
/// <prefix>reward/<name>.
Metrics reward_part_metrics(std::span<const Group> groups, const std::string& reward_key,
                            const std::string& prefix);

/// rollout_time; tokens_per_gpu_per_sec and effective_... of each of `num_devices` GPUs;
/// longest_sample_...; request/e2e_latency and decode/throughput of samples that an engine timed;
/// non_generation_time/... where users' functions set it. All under perf/.
Metrics rollout_speed(std::span<const Group> groups, double seconds, int64_t num_devices);

/// Whether the reward of an execution is exactly 1, and none of its samples has failed.
bool is_right(const std::vector<const Sample*>& execution, const std::string& reward_key);

/// Unbiased estimate that one of k executions is right, of a group of `size` of which `correct` are (arXiv
/// 2107.03374, section 2.1). `size` is at least k.
double pass_at_k(int64_t size, int64_t correct, int64_t k);

/// Unbiased pass@k for k = 1, 2, 4, ... up to the size of the largest group (spec 19.2): 1 - C(g -
/// c, k) / C(g, k), mean over groups of at least k, where c rewards of the g executions are exactly
/// 1; one with a failed sample is not right. Empty for groups of one. Names: <prefix>pass@<k>.
Metrics pass_at_k(std::span<const Group> groups, const std::string& reward_key,
                  const std::string& prefix);

/// Mean reward over all executions that have one or have failed; samples that have failed count 0.
double mean_reward(std::span<const Group> groups, const std::string& reward_key);

/// The groups without their failed samples, and without groups of which nothing is left.
std::vector<Group> without_failed(std::vector<Group> groups);

/// Why samples have failed, the commonest reason first: "3x reward: no answer after 10 attempts".
/// Reasons that differ in numbers only are counted together, under the first of them. At most
/// `limit` reasons, and how many samples have others.
std::string reasons_of_failures(std::span<const Group> groups, std::size_t limit);

int64_t num_failed(std::span<const Group> groups);

}  // namespace slime::report
