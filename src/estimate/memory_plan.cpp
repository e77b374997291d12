#include "estimate/memory_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

#include "core/error.h"
#include "core/field_reader.h"
#include "engine/engine.h"
#include "kernels/gpu/gpu.h"
#include "kernels/page.h"
#include "setup/train_config.h"
#include "train/kept_logits.h"

namespace slime::estimate {
namespace {

constexpr double kGibibyte = 1 << 30;
constexpr double kMebibyte = 1 << 20;
/// Below that, rows in GiB with two digits would say 0.00.
constexpr int64_t kShownInMebibytes = int64_t{8} << 30;
using kernels::kPageTokens;
/// Libraries load their kernels when they are first used, and allocators round up.
constexpr int64_t kMargin = int64_t{3} << 29;
/// Holders below ten MiB are part of the rest.
constexpr int64_t kShownBytes = int64_t{10} << 20;

std::string gib(int64_t bytes) {
  return fmt::format("{:.2f}", static_cast<double>(bytes) / kGibibyte);
}

/// What an evaluation's engine takes of the room for keys and values, one part in so many.
constexpr int64_t kShareOfEvaluations = 8;

}  // namespace

int64_t MemoryNeeds::least_pages() const {
  return ((most_held > 0 ? most_held : longest_request) + kPageTokens - 1) / kPageTokens + 1;
}

int64_t MemoryNeeds::request_bytes() const {
  return ((longest_request + kPageTokens - 1) / kPageTokens + 1) * kv_page_bytes;
}

MemoryPlan::MemoryPlan(const config::RunConfig& config, const MemoryNeeds& needs,
                       const kernels::GpuMemoryUse& now)
    : place_("the GPU"), total_(now.total) {
  const TrainerMemory& train = needs.train;
  const int64_t fixed = now.elsewhere() + needs.library_workspaces + train.resident() +
                        needs.functions + needs.other_adapters;
  publishes_on_host_ = needs.published_weights > 0 &&
                       now.elsewhere() + train.peak() + needs.functions + needs.published_weights +
                               needs.eval_weights + needs.eval_workspace + kMargin >
                           total_;
  const int64_t published = publishes_on_host_ ? 0 : needs.published_weights;
  int64_t room =
      total_ - fixed - needs.engine_resident() - needs.engine_transient - published - kMargin;
  // An engine beside the trainer generates while the weights are trained.
  const bool stays = config.no_offload_rollout || !config.has_device_in_turns() ||
                     !kernels::gpu_abilities().gives_memory_back;
  if (stays) room -= train.gradients + train.activations + train.logits;
  if (needs.eval_requests > 0) {
    room -= needs.eval_weights + needs.eval_workspace;
    eval_cache_bytes_ =
        std::max(needs.request_bytes(),
                 std::min(needs.eval_requests * needs.request_bytes(), room / kShareOfEvaluations));
    room -= eval_cache_bytes_;
  }
  if (needs.has_engine) {
    const int64_t request_pages = (needs.longest_request + kPageTokens - 1) / kPageTokens + 1;
    // A whole batch of the longest requests; more pages would never be filled.
    const int64_t wanted = request_pages * config.sglang_max_running_requests * needs.kv_page_bytes;
    kv_cache_bytes_ = std::min(wanted, room);
    // What one step's requests do not need rather stays away than comes and goes with each step.
    const int64_t in_training =
        room - (stays ? 0 : train.gradients + train.activations + train.logits);
    const int64_t requests =
        needs.step_requests > 0 ? needs.step_requests : config.sglang_max_running_requests;
    if (!stays && !config.offload_rollout && in_training < kv_cache_bytes_ &&
        in_training >= requests * request_pages * needs.kv_page_bytes)
      kv_cache_bytes_ = in_training;
    if (config.sglang_mem_fraction_static) {
      const auto share =
          static_cast<int64_t>(*config.sglang_mem_fraction_static * static_cast<double>(total_));
      kv_cache_bytes_ = std::min(
          room, share - std::max(train.weights, needs.whole_weights + needs.engine_weights));
    }
    if (config.kv_cache_gb > 0) {
      kv_cache_bytes_ = static_cast<int64_t>(config.kv_cache_gb * kGibibyte);
      if (kv_cache_bytes_ > room) {
        throw ConfigError(fmt::format(
            "--kv-cache-gb {}: {} of the GPU's {} GiB are left for keys and values beside the "
            "weights and the optimizer",
            config.kv_cache_gb, gib(std::max<int64_t>(room, 0)), gib(total_)));
      }
    }
    if (kv_cache_bytes_ < needs.least_pages() * needs.kv_page_bytes) {
      throw ConfigError(fmt::format(
          "the GPU has {} GiB; weights, optimizer and the engine's steps take {}, and a request of "
          "{} tokens needs {} for its keys and values. --sglang-max-running-requests, "
          "--sglang-chunked-prefill-size and a larger --sglang-mem-fraction-static help",
          gib(total_), gib(total_ - room), needs.longest_request,
          gib(needs.least_pages() * needs.kv_page_bytes)));
    }
  }
  const int64_t together = now.elsewhere() + needs.library_workspaces + needs.functions +
                           needs.other_adapters + train.peak() + kv_cache_bytes_ +
                           needs.engine_resident() + needs.engine_transient + needs.eval_weights +
                           needs.eval_workspace + eval_cache_bytes_ + kMargin;
  offloads_ = needs.has_engine && train.gradients > 0 && !stays &&
              (config.offload_rollout || together > total_);
  add_rows(config, needs, {.cache = kv_cache_bytes_, .elsewhere = now.elsewhere()});
}

MemoryPlan::MemoryPlan(const config::RunConfig& config, const MemoryNeeds& needs,
                       const HostMemory& now, int64_t in_tensors)
    : place_("this machine"), is_on_gpu_(false), total_(now.total) {
  int64_t filled = 0, experts = 0, states = 0;
  if (needs.has_engine) {
    kv_cache_bytes_ = config.kv_cache_gb > 0 ? static_cast<int64_t>(config.kv_cache_gb * kGibibyte)
                                             : engine::EngineConfig().kv_cache_bytes;
    // Pages are touched when they are first written. Finished requests stay in the prefix tree
    // until the weights change, so a step fills as many as all of its samples need.
    const int64_t request_pages = (needs.longest_request + kPageTokens - 1) / kPageTokens + 1;
    const int64_t samples =
        config.sglang_disable_radix_cache
            ? std::min(config.samples_per_rollout(), config.sglang_max_running_requests.get())
            : config.samples_per_rollout();
    if (needs.state_bytes > 0) {
      // One while a request runs, then one as the snapshot of its end, and one of its prompt.
      const bool shares = !config.sglang_disable_radix_cache;
      const int64_t room = engine::num_states_of(kv_cache_bytes_, needs.state_bytes,
                                                 config.sglang_max_running_requests, shares);
      states = std::min(room, (shares ? 2 : 1) * samples) * needs.state_bytes;
    }
    filled = std::min(kv_cache_bytes_ - states, samples * request_pages * needs.kv_page_bytes);
    experts = filled / needs.kv_page_bytes * needs.expert_page_bytes;
  }
  if (needs.eval_requests > 0)
    eval_cache_bytes_ = std::min(needs.eval_requests * needs.request_bytes(),
                                 engine::EngineConfig().kv_cache_bytes);
  offloads_ = needs.has_engine && config.offload_rollout;
  add_rows(config, needs,
           {filled, experts, states, std::max<int64_t>(0, now.resident - in_tensors)});
}

void MemoryPlan::add_rows(const config::RunConfig& config, const MemoryNeeds& needs,
                          const Shares& shares) {
  const auto& [cache, experts, states, elsewhere] = shares;
  const TrainerMemory& train = needs.train;
  const int64_t kept_cache = offloads_ ? 0 : cache;
  const int64_t kept_gradients = offloads_ ? 0 : train.gradients;

  const auto add = [&](std::string name, int64_t rollout, int64_t train_bytes, bool is_known,
                       std::string remedy = {}) {
    if (rollout > 0 || train_bytes > 0)
      rows_.push_back({std::move(name), rollout, train_bytes, is_known, std::move(remedy)});
  };
  add("weights", train.weights, train.weights, true);
  add("master weights and moments", train.optimizer, train.optimizer, true,
      config.optimizer_cpu_offload || !is_on_gpu_ ? "" : "--optimizer-cpu-offload");
  add("reference, teacher, critic, lagging actor", train.others, train.others, true);
  add("gradients", kept_gradients, train.gradients, true);
  add(fmt::format("activations of {} tokens", needs.micro_batch_tokens), 0, train.activations,
      false,
      config.recompute_granularity != "full"
          ? "--recompute-granularity full, or --max-tokens-per-gpu (with --use-dynamic-batch-size)"
          : "--max-tokens-per-gpu (with --use-dynamic-batch-size)");
  add("adapters of other runs, and the engine's", needs.other_adapters, needs.other_adapters, true);
  add("a chunk of logits", 0, train.logits, false);
  std::string cache_name =
      is_on_gpu_ ? "keys and values" : "keys and values, if responses are long";
  if (needs.ranks_of_one_cache > 1)
    cache_name = fmt::format("latents, the same on all {} ranks", needs.ranks_of_one_cache);
  add(std::move(cache_name), cache, kept_cache, is_on_gpu_, "--kv-cache-gb");
  // Sleep gives keys and values back, not these.
  add("choices of experts of their tokens", experts, experts, false,
      config.kv_cache_gb > 0 ? "--kv-cache-gb" : "--rollout-max-response-len, --kv-cache-gb");
  add("states of requests and of their prefixes", states, offloads_ ? 0 : states, false,
      "--sglang-max-running-requests");
  add(config.ranks_of_own_engine() > 1 ? "the engine's slices of the weights"
                                       : "the whole model's weights",
      needs.whole_weights, needs.whole_weights, true);
  add("the engine's weights", needs.engine_weights, needs.engine_weights, true);
  add("their second buffer", needs.staged_weights, needs.staged_weights, true);
  if (!publishes_on_host_)
    add("the published weights", needs.published_weights, needs.published_weights, true);
  add("steps of the engine", needs.engine_workspace, needs.engine_workspace, false,
      "--sglang-chunked-prefill-size, --sglang-max-running-requests");
  const int64_t evaluation = needs.eval_weights + needs.eval_workspace + eval_cache_bytes_;
  add("an evaluation's engine, while it runs", evaluation, evaluation, false);
  add("Python of the trainer's functions", needs.functions, needs.functions, false);
  add(is_on_gpu_ ? "CUDA and its libraries" : "program, libraries, tokenizer, data", elsewhere,
      elsewhere, false);
  add("workspaces of matrix products", needs.library_workspaces, needs.library_workspaces, true);
  if (is_on_gpu_ && setup::keeps_logits(config) && train.all_logits > train.logits)
    add("further logits, where there is room", 0,
        train::kept_logits(total_ - train_bytes(), train.all_logits), false);
}

json::object MemoryPlan::to_json() const {
  json::array rows;
  for (const Row& row : rows_)
    rows.push_back(json::object{{"name", row.name},
                                {"rollout", row.rollout},
                                {"train", row.train},
                                {"is_known", row.is_known},
                                {"remedy", row.remedy}});
  return {{"place", place_},
          {"is_on_gpu", is_on_gpu_},
          {"rows", std::move(rows)},
          {"total", total_},
          {"kv_cache_bytes", kv_cache_bytes_},
          {"eval_cache_bytes", eval_cache_bytes_},
          {"offloads", offloads_},
          {"publishes_on_host", publishes_on_host_}};
}

MemoryPlan MemoryPlan::from_json(const json::object& object) {
  const FieldReader fields = FieldReader(object, "a rank's memory: ").required();
  MemoryPlan plan;
  plan.place_ = *fields.text("place");
  plan.process_ = "rank 0";
  plan.is_on_gpu_ = *fields.boolean("is_on_gpu");
  for (const FieldReader& row : fields.list("rows")) {
    const FieldReader all = row.required();
    plan.rows_.push_back({.name = *all.text("name"),
                          .rollout = *all.integer("rollout", 0),
                          .train = *all.integer("train", 0),
                          .is_known = *all.boolean("is_known"),
                          .remedy = all.text("remedy").value_or("")});
  }
  plan.total_ = *fields.integer("total", 0);
  plan.kv_cache_bytes_ = *fields.integer("kv_cache_bytes", 0);
  plan.eval_cache_bytes_ = *fields.integer("eval_cache_bytes", 0);
  plan.offloads_ = *fields.boolean("offloads");
  plan.publishes_on_host_ = *fields.boolean("publishes_on_host");
  return plan;
}

int64_t MemoryPlan::total_of(int64_t Row::*column) const {
  int64_t sum = 0;
  for (const Row& row : rows_) sum += row.*column;
  return sum;
}

bool MemoryPlan::is_small() const {
  return std::max(rollout_bytes(), train_bytes()) < kShownInMebibytes;
}

const char* MemoryPlan::unit() const { return is_small() ? "MiB" : "GiB"; }

std::string MemoryPlan::amount(int64_t bytes) const {
  if (!is_small()) return gib(bytes);
  return fmt::format("{:.1f}", static_cast<double>(bytes) / kMebibyte);
}

std::vector<std::string> MemoryPlan::lines() const {
  std::vector<std::string> lines;
  lines.push_back(fmt::format("{:<44}{:>12}{:>12}", fmt::format("memory of {}, {}", user(), unit()),
                              "generating", "training"));
  const auto cell = [this](int64_t bytes) { return bytes == 0 ? std::string("-") : amount(bytes); };
  for (const Row& row : rows_)
    lines.push_back(
        fmt::format("  {:<42}{:>12}{:>12}", row.name, cell(row.rollout), cell(row.train)));
  lines.push_back(fmt::format("  {:<42}{:>12}{:>12}",
                              fmt::format("together, of {}", amount(total_)),
                              amount(rollout_bytes()), amount(train_bytes())));
  if (offloads_)
    lines.emplace_back("  keys and values give their memory back while the weights are trained");
  if (publishes_on_host_)
    lines.emplace_back("  the published weights are kept in the host's memory");
  if (!is_on_gpu_)
    lines.emplace_back(
        "  not counted: freed memory that the C library keeps, other ranks and judges");
  if (train_bytes() > total_) {
    lines.push_back(
        fmt::format("  training may run out of memory: {} {} more are needed than there are",
                    amount(train_bytes() - total_), unit()));
  }
  return lines;
}

std::string MemoryPlan::compare(const PeakMemory& rollout, const PeakMemory& train) const {
  std::vector<std::string> parts;
  const auto add = [&](const char* phase, const PeakMemory& measured, int64_t predicted) {
    if (measured.bytes == 0) return;
    parts.push_back(fmt::format("{} {} while {} ({} predicted)", amount(measured.bytes), unit(),
                                phase, amount(predicted)));
  };
  add("generating", rollout, rollout_bytes());
  add("training", train, train_bytes());
  std::string text = fmt::format("memory of {}, measured: {}", user(), fmt::join(parts, ", "));
  const PeakMemory& highest = train.bytes >= rollout.bytes ? train : rollout;
  if (highest.kept > 0)
    text += fmt::format(
        "; at most {} in CUDA and its libraries, {} in pages of the KV cache, {} in the caching "
        "allocator, of which tensors {}",
        amount(highest.elsewhere), amount(highest.mapped), amount(highest.kept),
        amount(highest.tensors));
  return text;
}

std::vector<std::pair<std::string, double>> MemoryPlan::holders(Phase phase,
                                                                int64_t measured) const {
  const auto column = column_of(phase);
  std::vector<std::pair<std::string, double>> named;
  int64_t rest = measured;
  const auto add = [&](const std::string& name, int64_t bytes) {
    if (bytes >= kShownBytes) named.emplace_back(name, static_cast<double>(bytes) / kGibibyte);
  };
  for (const Row& row : rows_) {
    if (!row.is_known || row.*column > rest) continue;
    add(row.name, row.*column);
    rest -= row.*column;
  }
  std::ranges::stable_sort(named, std::greater<>(), &std::pair<std::string, double>::second);
  if (!named.empty()) add("other", rest);  // alone it says nothing
  return named;
}

std::string MemoryPlan::explain(Phase phase, const std::string& error) const {
  const auto column = column_of(phase);
  std::vector<Row> rows = rows_;
  std::stable_sort(rows.begin(), rows.end(),
                   [&](const Row& a, const Row& b) { return a.*column > b.*column; });
  std::string text = fmt::format("{}'s memory ran out while {}: {} GiB, held by", place_,
                                 phase == Phase::kTrain ? "training" : "generating", gib(total_));
  const std::string of_rows = is_small() ? " MiB" : "";
  for (std::size_t i = 0; i < rows.size() && i < 4 && rows[i].*column > 0; ++i)
    text += fmt::format("{} {} ({}{})", i == 0 ? "" : ",", rows[i].name, amount(rows[i].*column),
                        of_rows);
  std::vector<std::string> remedies;
  for (const Row& row : rows)
    if (row.*column > 0 && !row.remedy.empty()) remedies.push_back(row.remedy);
  if (!remedies.empty()) text += fmt::format(". Smaller: {}", fmt::join(remedies, "; "));
  // The allocator's own text is long; its first line says how much was asked for.
  return text + ". " + error.substr(0, error.find(". GPU "));
}

}  // namespace slime::estimate
