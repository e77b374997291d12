#include "bench/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "bench/device_profile.h"
#include "bench/generate_all.h"
#include "bench/weight_counts.h"
#include "core/error.h"
#include "core/field_reader.h"
#include "core/splitmix64.h"
#include "kernels/routed_experts.h"
#include "kernels/trace.h"

namespace slime::bench {
namespace {

std::vector<TokenId> prompt_ids(const Workload& workload, std::size_t prompt) {
  constexpr uint64_t kIds = 150000;
  std::vector<TokenId> ids;
  for (int64_t j = 0; j < workload.prompt_lengths[prompt]; ++j) {
    const uint64_t key =
        (workload.seed << 40) | (uint64_t{prompt} << 20) | static_cast<uint64_t>(j);
    ids.push_back(static_cast<TokenId>(splitmix64(key) % kIds));
  }
  return ids;
}

/// `output_length` 0: the workload's own.
std::vector<engine::GenerateRequest> requests_of(const Workload& workload, int64_t output_length) {
  std::vector<engine::GenerateRequest> requests;
  for (std::size_t i = 0; i < workload.prompt_lengths.size(); ++i) {
    engine::GenerateRequest request;
    request.input_ids = prompt_ids(workload, i);
    request.sampling.max_new_tokens =
        output_length > 0 ? output_length : workload.output_lengths[i];
    request.sampling.ignore_eos = true;
    request.return_logprob = workload.wants_log_probs;
    request.top_logprobs_num = workload.num_top_log_probs;
    request.sampling.frequency_penalty = workload.frequency_penalty;
    request.sampling.top_p = workload.top_p;
    request.return_top_p_token_ids = workload.keeps_ids;
    if (!workload.adapters.empty())
      request.adapter = workload.adapters[i % workload.adapters.size()];
    for (int64_t sample = 0; sample < workload.samples_per_prompt; ++sample)
      requests.push_back(request);
  }
  return requests;
}

struct WorkloadRun {
  double seconds = 0;  // from the first request to the last token
  DraftCounts drafts;
};

/// `output_length` 0: the workload's own.
WorkloadRun run_once(engine::Engine& engine, const Workload& workload, int64_t output_length,
                     const Clock& clock) {
  const Clock::TimePoint start = clock.now();
  const auto results = generate_all(engine, requests_of(workload, output_length));
  WorkloadRun run{.seconds = seconds_between(start, clock.now())};
  for (const engine::GenerateUpdate& result : results) run.drafts += result.drafts;
  return run;
}

/// Of the steps behind those of `earlier`.
DraftCounts difference(const DraftCounts& all, const DraftCounts& earlier) {
  return {.num_drafted = all.num_drafted - earlier.num_drafted,
          .num_kept = all.num_kept - earlier.num_kept,
          .num_steps = all.num_steps - earlier.num_steps};
}

/// Counts of one model, for floors.
struct Costs {
  double weight_bytes = 0;     // read by every step; the embedding only as the output layer
  double expert_bytes = 0;     // of one expert in all layers that have experts
  double visited_experts = 0;  // of a layer, mean of the steps
  double kv_bytes = 0;         // of one token
  double flops = 0;            // per token, matrix products
  double attention_flops = 0;  // per token and key
  kernels::GpuLimits limits;

  /// A step that is long enough for its bytes and for its operations.
  /// `keys_read`: fewer than `num_keys` where samples read their prompt together.
  double step_seconds(double num_tokens, double num_keys, double keys_read) const {
    const double bytes = weight_bytes + visited_experts * expert_bytes + keys_read * kv_bytes;
    return std::max(bytes / limits.copy_bytes_per_second,
                    (num_tokens * flops + num_keys * attention_flops) / limits.flops_per_second);
  }
};

Costs costs_of(model::Network& network, at::ScalarType kv_dtype, const kernels::GpuLimits& limits,
               int num_ranks) {
  const WeightCounts weights = weight_counts(network, num_ranks);
  const int64_t number_bytes = network.weights().flat().element_size();
  Costs costs;
  costs.weight_bytes = static_cast<double>(weights.always * number_bytes);
  costs.expert_bytes = static_cast<double>(weights.expert * number_bytes);
  if (network.weights().has_formats()) {
    const model::WeightBuffers stored = network.weights().buffers();
    const auto coded = static_cast<double>(stored.codes_Q.numel());
    const double code_bytes = 1 + static_cast<double>(stored.scales_S.nbytes()) / coded;
    const auto of_experts = static_cast<double>(weights.num_experts * weights.expert);
    const bool are_experts_coded = coded >= of_experts;
    if (are_experts_coded) costs.expert_bytes = static_cast<double>(weights.expert) * code_bytes;
    costs.weight_bytes += (coded - (are_experts_coded ? of_experts : 0)) *
                          (code_bytes - static_cast<double>(number_bytes));
  }
  costs.flops = 2.0 * static_cast<double>(weights.multiplied());
  for (const model::BlockNeeds& block : network.blocks()) {
    costs.kv_bytes += static_cast<double>(block.cache.numbers_per_token() *
                                          static_cast<int64_t>(c10::elementSize(kv_dtype)));
    costs.attention_flops += static_cast<double>(block.costs.flops_per_pair) / num_ranks;
  }
  costs.limits = limits;
  return costs;
}

/// Counts experts that have a visit, from its making on, where the device counts them.
class VisitedExpertsMeter {
 public:
  explicit VisitedExpertsMeter(const Tensor& weights)
      : kernels_(kernels::expert_kernels_for(weights)), start_(now()) {}

  /// Of a layer in a step; 0: there were no such steps.
  double mean() const {
    const kernels::VisitedExperts end = now();
    if (end.calls == start_.calls) return 0;
    return static_cast<double>(end.experts - start_.experts) /
           static_cast<double>(end.calls - start_.calls);
  }

 private:
  kernels::VisitedExperts now() const {
    return kernels_ == nullptr ? kernels::VisitedExperts{} : kernels_->visited_experts();
  }

  const kernels::ExpertKernels* kernels_;
  kernels::VisitedExperts start_;
};

/// Prompts computed once each at the matrix limit, then all samples decode together. A step reads a
/// group's prompt once where the engine does.
double throughput_floor(const Workload& workload, const Costs& costs, bool shares_prompt_reads) {
  double seconds = 0;
  int64_t longest = 0;
  for (std::size_t i = 0; i < workload.prompt_lengths.size(); ++i) {
    seconds += static_cast<double>(workload.prompt_lengths[i]) * costs.flops /
               costs.limits.flops_per_second;
    longest = std::max(longest, workload.output_lengths[i]);
  }
  for (int64_t step = 1; step < longest; ++step) {
    double running = 0, keys = 0, read = 0;
    for (std::size_t i = 0; i < workload.prompt_lengths.size(); ++i) {
      if (workload.output_lengths[i] <= step) continue;
      const int64_t prompt = workload.prompt_lengths[i], samples = workload.samples_per_prompt;
      running += static_cast<double>(samples);
      keys += static_cast<double>((prompt + step) * samples);
      read += static_cast<double>(prompt * (shares_prompt_reads ? 1 : samples) + step * samples);
    }
    seconds += costs.step_seconds(running, keys, read);
  }
  return seconds;
}

double decode_floor(const Workload& workload, const Costs& costs) {
  double running = 0, keys = 0;
  for (std::size_t i = 0; i < workload.prompt_lengths.size(); ++i) {
    running += 1;
    keys += static_cast<double>(workload.prompt_lengths[i]) +
            static_cast<double>(workload.short_output_length + workload.output_lengths[i]) / 2;
  }
  return costs.step_seconds(running, keys, keys);
}

/// Per token, of the products behind the last layer's attention.
double flops_behind_last_attention(const model::ModelConfig& config) {
  const bool is_latent = config.latent.kv_rank > 0;
  const int64_t attended =
      config.num_heads * (is_latent ? config.latent.value_dim : config.head_dim);
  const model::ExpertsConfig& experts = config.experts;
  const int64_t width = experts.are_in(config.num_layers - 1)
                            ? experts.per_token * experts.width + experts.shared_width
                            : config.intermediate_size;
  return 2.0 * static_cast<double>(config.hidden_size * (attended + 3 * width));
}

/// Only what has to be computed: one row of each prompt sees the output layer and what comes before it.
double prefill_flops(const Workload& workload, const Costs& costs, const model::ModelConfig& config,
                     int num_ranks) {
  const double head = 2.0 * static_cast<double>(config.vocab_size * config.hidden_size);
  const double per_token = costs.flops - (head + flops_behind_last_attention(config)) / num_ranks;
  double flops = 0;
  for (const int64_t length : workload.prompt_lengths) {
    const auto n = static_cast<double>(length);
    flops += n * per_token + n * n / 2 * costs.attention_flops;
  }
  return flops;
}

Workload::Kind kind_of(const std::string& word, const std::string& where) {
  if (word == "throughput") return Workload::Kind::kThroughput;
  if (word == "decode") return Workload::Kind::kDecode;
  if (word == "prefill") return Workload::Kind::kPrefill;
  throw ConfigError(where + ": kind must be throughput, decode or prefill, not " + word);
}

Workload to_workload(const FieldReader& fields) {
  const FieldReader needed = fields.required();
  Workload workload;
  workload.id = *needed.text("id");
  workload.model = *needed.text("model");
  workload.kind = kind_of(*needed.text("kind"), workload.id);
  workload.seed = static_cast<uint64_t>(*needed.integer("seed", 0));
  workload.samples_per_prompt = *needed.integer("n", 1);
  const auto log_probs = fields.integer("logprobs", 0);
  workload.wants_log_probs = log_probs.has_value();
  workload.num_top_log_probs = log_probs.value_or(workload.num_top_log_probs);
  workload.frequency_penalty =
      fields.number("frequency_penalty", -2, 2).value_or(workload.frequency_penalty);
  workload.top_p = fields.number("top_p", 1e-6, 1).value_or(workload.top_p);
  workload.keeps_ids = fields.boolean("keeps_ids").value_or(workload.keeps_ids);
  workload.prompt_lengths = needed.numbers<int64_t>("in");
  workload.output_lengths = needed.numbers<int64_t>("out");
  if (workload.kind == Workload::Kind::kDecode)
    workload.short_output_length = *needed.integer("out_short");
  return workload;
}

}  // namespace

int64_t longest_request(const Workload& workload) {
  int64_t longest = 0;
  for (std::size_t i = 0; i < workload.prompt_lengths.size(); ++i)
    longest = std::max(longest, workload.prompt_lengths[i] + workload.output_lengths[i]);
  return longest;
}

const Workload* WorkloadFile::find(const std::string& id) const {
  const auto it = std::find_if(workloads.begin(), workloads.end(),
                               [&](const Workload& workload) { return workload.id == id; });
  return it == workloads.end() ? nullptr : &*it;
}

WorkloadFile read_workloads(const std::filesystem::path& path) {
  const json::value value = read_json_file(path, size_t{16} << 20);
  if (!value.is_object()) throw ConfigError(path.string() + ": must hold a JSON object");
  const FieldReader fields = FieldReader(value.get_object(), path.string() + ": ").required();
  WorkloadFile file;
  const FieldReader models = fields.fields("models")->required();
  for (const auto& model : models.raw())
    file.models.emplace(model.key(), *models.object(model.key()));
  for (const FieldReader& workload : fields.list("workloads"))
    file.workloads.push_back(to_workload(workload));
  return file;
}

json::object run_workload(engine::Engine& engine, model::Network& network, const Workload& workload,
                          const kernels::GpuLimits& limits, int repeats, bool shares_prompt_reads,
                          const Clock& clock, int num_ranks, const DraftOptions& drafts) {
  Costs costs = costs_of(network, engine.kv_dtype(), limits, num_ranks);
  double best = 1e300;
  json::array all;
  DraftCounts counts;  // of runs that count; of decode, in the timed window
  std::optional<VisitedExpertsMeter> visited;
  // One run before those that count: batch sizes are recorded, products measured.
  for (int repeat = -1; repeat < repeats; ++repeat) {
    double seconds = 0;
    if (repeat == 0) visited.emplace(network.weights().flat());
    if (workload.kind == Workload::Kind::kDecode) {
      run_once(engine, workload, 1, clock);  // fills the prefix tree
      const WorkloadRun brief = run_once(engine, workload, workload.short_output_length, clock);
      const WorkloadRun full = run_once(engine, workload, 0, clock);
      if (repeat >= 0) counts += difference(full.drafts, brief.drafts);
      seconds = (full.seconds - brief.seconds) /
                static_cast<double>(workload.output_lengths.front() - workload.short_output_length);
    } else {
      engine::or_throw(engine.flush_cache());
      const bool is_warm_up = repeat < 0 && workload.kind == Workload::Kind::kThroughput;
      const WorkloadRun run = run_once(engine, workload, is_warm_up ? 32 : 0, clock);
      if (repeat >= 0) counts += run.drafts;
      seconds = run.seconds;
    }
    if (repeat < 0) continue;
    all.emplace_back(seconds);
    best = std::min(best, seconds);
  }
  costs.visited_experts = visited->mean();
  double value = 0, floor = 0, fraction = 0;
  const char* unit = "";
  if (workload.kind == Workload::Kind::kThroughput) {
    double tokens = 0;
    for (const int64_t length : workload.output_lengths)
      tokens += static_cast<double>(length * workload.samples_per_prompt);
    unit = "output tokens per second";
    value = tokens / best;
    floor = tokens / throughput_floor(workload, costs, shares_prompt_reads);
    fraction = value / floor;
  } else if (workload.kind == Workload::Kind::kDecode) {
    unit = drafts.most == 0 ? "ms per step" : "ms per token";
    value = best * 1e3;
    floor = decode_floor(workload, costs) * 1e3;
    fraction = floor / value;
  } else {
    unit = "fraction of the matrix limit";
    value = prefill_flops(workload, costs, network.config(), num_ranks) / best /
            limits.flops_per_second;
    floor = 1;
    fraction = value;
  }
  json::object out{{"name", workload.id},
                   {"value", value},
                   {"unit", unit},
                   {"floor", floor},
                   {"fraction", fraction},
                   {"seconds", all},
                   {"copy_tb_per_second", limits.copy_bytes_per_second * 1e-12},
                   {"matrix_tflops", limits.flops_per_second * 1e-12}};
  if (costs.expert_bytes > 0) out["visited_experts"] = costs.visited_experts;
  put_drafts(out, drafts, counts);
  if (drafts.most > 0 && workload.kind == Workload::Kind::kDecode)
    out["ms_per_step"] = value * tokens_per_step(counts);
  return out;
}

json::object profile_workload(engine::Engine& engine, const Workload& workload,
                              const Clock& clock) {
  if (workload.kind != Workload::Kind::kDecode) {
    engine::or_throw(engine.flush_cache());
    // Of responses the first tokens: a trace of all would be millions of kernels.
    constexpr int64_t kTracedTokens = 64;
    const bool is_long = workload.kind == Workload::Kind::kThroughput;
    kernels::begin_trace(/*with_gpu=*/true);
    run_once(engine, workload, is_long ? kTracedTokens : 0, clock);
    return device_profile(kernels::end_trace_of_gpu(), 1);
  }
  // Traced while all of them decode.
  constexpr int64_t kBefore = 16, kTraced = 32, kMost = kBefore + 2 * kTraced + 64;
  run_once(engine, workload, 1, clock);  // fills the prefix tree
  std::vector<engine::GenerateRequest> requests = requests_of(workload, kMost);
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<int64_t> sampled(requests.size(), 0);  // guarded by mutex
  for (std::size_t i = 0; i < requests.size(); ++i) {
    engine.submit(std::move(requests[i]), [&, i](const engine::GenerateUpdate& update) {
      const std::lock_guard lock(mutex);
      sampled[i] += static_cast<int64_t>(update.output_ids.size());
      changed.notify_one();
    });
  }
  const auto fewest_sampled_when = [&](int64_t at_least) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return std::ranges::min(sampled) >= at_least; });
    return std::ranges::min(sampled);
  };
  fewest_sampled_when(kBefore);
  engine::or_throw(engine.pause(engine::PauseMode::kInPlace));
  const int64_t begin = fewest_sampled_when(0);
  kernels::begin_trace(/*with_gpu=*/true);
  engine::or_throw(engine.resume());
  fewest_sampled_when(begin + kTraced);
  engine::or_throw(engine.pause(engine::PauseMode::kInPlace));
  const int64_t steps = fewest_sampled_when(0) - begin;
  json::object profile = device_profile(kernels::end_trace_of_gpu(), static_cast<int>(steps));
  engine::or_throw(engine.resume());
  fewest_sampled_when(kMost);
  return profile;
}

}  // namespace slime::bench
