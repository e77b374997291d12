#pragma once

/// Memory plan of a device: the share of each part of a run, decided and shown before the run
/// starts.
///
/// On a GPU trainer and engine work in phases. Both need weights, optimizer and the other networks
/// all the time; gradients and activations belong to the training phase, keys and values to the
/// generation phase. Where everything fits at once nothing moves; otherwise the cache of keys and
/// values gives its pages back while the trainer works, and gradients while responses are
/// generated. On the CPU the system hands out pages as they are touched; there the plan is a
/// prediction, and memory is given back when --offload-rollout asks for it. An engine in a process of
/// its own plans that process's device (roles/engine_role.h).

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "config/run_config.h"
#include "core/json.h"
#include "estimate/process_memory.h"
#include "estimate/trainer_memory.h"
#include "kernels/gpu/memory.h"

namespace slime::estimate {

/// What the plan is made from, all in bytes or tokens.
struct MemoryNeeds {
  TrainerMemory train;             // zeros without a trainer, weights apart
  int64_t micro_batch_tokens = 0;  // that train.activations was predicted for
  bool has_engine = true;
  int64_t kv_page_bytes = 0;  // of the tokens of a page in all layers
  /// Beside them, where choices of experts are recorded, in the host's memory: counted on the CPU.
  int64_t expert_page_bytes = 0;
  int64_t state_bytes = 0;      // of a request, in networks whose layers keep one (on the CPU)
  int64_t longest_request = 0;  // tokens, prompt and response
  /// Of those in pages at once, on average over the layers, where windows give pages back; 0: all.
  int64_t most_held = 0;
  /// Of several runs over one base: what the others train, with gradients and moments, and the versions of all
  /// that their engine has.
  int64_t other_adapters = 0;
  int64_t functions = 0;         // of the GPU: the process of the trainer's functions in Python
  int64_t engine_workspace = 0;  // activations and logits of a step, recorded steps
  /// Taken while the engine chooses kernels, and given back: it needs room, and is no use of a phase.
  int64_t engine_transient = 0;
  int64_t library_workspaces = 0;  // that a first product takes for good
  int64_t engine_weights = 0;      // of an engine with weights of its own
  int64_t staged_weights = 0;      // its second buffer
  /// Beside this rank's part of the model; trained ones are brought there.
  int64_t whole_weights = 0;
  /// At once in this engine, of a rollout step; 0: as many as run together.
  int64_t step_requests = 0;
  int64_t ranks_of_one_cache = 1;  // each has all of it: latents are of no head
  /// What engines in processes of their own have, kept for those that come back.
  int64_t published_weights = 0;
  // Of an evaluation beside training, while one runs; 0: there is none.
  int64_t eval_weights = 0;
  int64_t eval_workspace = 0;
  int64_t eval_requests = 0;  // that it would draw together

  /// What an engine takes besides keys and values.
  int64_t engine_resident() const {
    return engine_workspace + whole_weights + engine_weights + staged_weights;
  }
  /// Pages that a request cannot do without.
  int64_t least_pages() const;
  /// Pages of the longest request, whole ones.
  int64_t request_bytes() const;
};

/// What the device is used for.
enum class Phase { kGenerate, kTrain };

/// Measured at the peak of a phase, in bytes; the parts are of a GPU alone.
struct PeakMemory {
  int64_t bytes = 0;      // 0: the phase has not been there
  int64_t elsewhere = 0;  // context, modules and workspaces of libraries, other processes
  int64_t mapped = 0;     // pages of the KV cache
  int64_t kept = 0;       // by LibTorch's caching allocator, tensors included
  int64_t tensors = 0;
};

class MemoryPlan {
 public:
  /// `now`: before the engine exists, with the weights and the optimizer in place. Throws
  /// ConfigError when --kv-cache-gb asks for more than there is, or nothing is left for one
  /// request.
  MemoryPlan(const config::RunConfig& config, const MemoryNeeds& needs,
             const kernels::GpuMemoryUse& now);
  /// The same for a run on the CPU. `in_tensors`: of `now.resident`, bytes of weights, optimizer and
  /// gradients that are in place already.
  MemoryPlan(const config::RunConfig& config, const MemoryNeeds& needs, const HostMemory& now,
             int64_t in_tensors);

  /// The plan of a rank's process, which it tells the controller. Throws ConfigError for an object
  /// of another form.
  json::object to_json() const;
  static MemoryPlan from_json(const json::object& object);

  int64_t kv_cache_bytes() const { return kv_cache_bytes_; }
  /// Of an evaluation's engine.
  int64_t eval_cache_bytes() const { return eval_cache_bytes_; }
  /// Whether keys and values, and gradients, give their memory back in the other phase.
  bool offloads() const { return offloads_; }
  /// The published weights are kept in the host's memory: the GPU has no room for them.
  bool publishes_on_host() const { return publishes_on_host_; }
  /// Predicted use of the whole GPU, or by this process, while responses are generated, and at the
  /// peak of training.
  int64_t rollout_bytes() const { return total_of(&Row::rollout); }
  int64_t train_bytes() const { return total_of(&Row::train); }

  /// The table, a line each; with remarks where it is tight.
  std::vector<std::string> lines() const;
  /// "measured: 61.2 GiB while generating (61.0 predicted), ..."; of a GPU with the parts of the
  /// higher peak.
  std::string compare(const PeakMemory& rollout, const PeakMemory& train) const;
  /// Error message of a run that is out of memory: the biggest holders and the flag that makes
  /// each smaller.
  std::string explain(Phase phase, const std::string& error) const;
  /// Who holds `measured` bytes, in GiB, the biggest first: those whose size is known, and the rest
  /// as one.
  std::vector<std::pair<std::string, double>> holders(Phase phase, int64_t measured) const;

 private:
  struct Row {
    std::string name;
    int64_t rollout = 0, train = 0;
    bool is_known = false;  // not a prediction: the size of tensors
    std::string remedy;     // a flag that makes it smaller
  };
  static int64_t Row::*column_of(Phase phase) {
    return phase == Phase::kTrain ? &Row::train : &Row::rollout;
  }
  int64_t total_of(int64_t Row::*column) const;
  /// Small predictions are told in MiB, others in GiB.
  bool is_small() const;
  const char* unit() const;
  std::string amount(int64_t bytes) const;
  std::string user() const { return is_on_gpu_ ? place_ : process_; }
  /// `cache`: keys and values as the generation phase sees them. `experts`: choices beside them.
  /// `states`: of requests and prefixes. `elsewhere`: what belongs to nobody of ours.
  struct Shares {
    int64_t cache = 0, experts = 0, states = 0, elsewhere = 0;
  };
  void add_rows(const config::RunConfig& config, const MemoryNeeds& needs, const Shares& shares);

  MemoryPlan() = default;

  std::string place_;                     // "the GPU"
  std::string process_ = "this process";  // on a CPU, whose memory it is
  bool is_on_gpu_ = true;
  std::vector<Row> rows_;
  int64_t total_ = 0;  // of the place
  int64_t kv_cache_bytes_ = 0;
  int64_t eval_cache_bytes_ = 0;
  bool offloads_ = false;
  bool publishes_on_host_ = false;
};

}  // namespace slime::estimate
