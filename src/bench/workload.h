#pragma once

/// The workloads that rollout engines are compared on (bench/gpu/workloads.json): what is sent, how
/// it is timed, and the least time that the GPU's limits allow.
///
/// No tokenizer, no HTTP: ids in, ids out, until the last requested token. Weights are uniform
/// within 1e-3.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "bench/draft_options.h"
#include "core/clock.h"
#include "core/json.h"
#include "engine/engine.h"
#include "kernels/gpu/limits.h"

namespace slime::bench {

struct Workload {
  enum class Kind { kThroughput, kDecode, kPrefill };
  std::string id;
  std::string model;  // a key of WorkloadFile::models
  Kind kind = Kind::kThroughput;
  uint64_t seed = 0;
  int64_t samples_per_prompt = 1;
  bool wants_log_probs = false;
  int64_t num_top_log_probs = 0;
  double frequency_penalty = 0;
  double top_p = 1;
  bool keeps_ids = false;             // those that survive top-p are recorded
  std::vector<std::string> adapters;  // that requests name in turn; not of the file
  std::vector<int64_t> prompt_lengths;
  std::vector<int64_t> output_lengths;  // of the samples of each prompt
  int64_t short_output_length = 0;      // kDecode: where the timed window begins
};

/// Tokens of its longest prompt and response together.
int64_t longest_request(const Workload& workload);

struct WorkloadFile {
  std::map<std::string, json::object> models;  // config.json of each
  std::vector<Workload> workloads;

  /// Null when there is none of this id.
  const Workload* find(const std::string& id) const;
};

/// Throws ConfigError for a file of another form.
WorkloadFile read_workloads(const std::filesystem::path& path);

/// {"name", "value", "unit", "floor", "fraction", "repeats", ...}. Throughput: output tokens per
/// second. Decode: milliseconds per step. Prefill: share of the matrix limit. `fraction` is 1 at
/// the floor. The best repeat counts. With experts a step reads those that were visited, counted on
/// the device: "visited_experts" of a layer, mean of the steps. `shares_prompt_reads`: of the
/// engine; then the floor counts a group's prompt once a step. `num_ranks` share the model, of which
/// `network` has this one's slices: the floor is that of one of them, without what they say to one
/// another. `drafts`: of the engine; a decode workload then tells milliseconds per token of a sequence, and
/// "ms_per_step". Floors stay those of one token a step.
json::object run_workload(engine::Engine& engine, model::Network& network, const Workload& workload,
                          const kernels::GpuLimits& limits, int repeats, bool shares_prompt_reads,
                          const Clock& clock, int num_ranks = 1, const DraftOptions& drafts = {});

/// What fills the time of this process' GPU (bench/device_profile.h): a decode step, the mean of 32
/// of them with their prompts cached; prompts as a whole; of a throughput all with their first 64
/// tokens. Run the workload before, so that batch sizes are recorded.
json::object profile_workload(engine::Engine& engine, const Workload& workload, const Clock& clock);

}  // namespace slime::bench
