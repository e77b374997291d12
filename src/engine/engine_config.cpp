#include "engine/engine_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "engine/cache_shape.h"
#include "engine/page_pool.h"
#include "engine/paged_kv_cache.h"
#include "engine/state_pool.h"
#include "engine/step_runner.h"
#include "kernels/cpu/paged_attention.h"
#include "kernels/gpu/gpu.h"

namespace slime::engine {
namespace {

/// Why the cache cannot be in fp8; empty when it can.
std::string why_no_fp8(model::Network& network) {
  if (!network.weights().flat().is_cuda())
    return "kv_cache_dtype = fp8_e4m3: needs a GPU; the CPU reads float32 and bfloat16";
  const auto weights = network.weights().flat().scalar_type();
  const kernels::RotaryShape heads = attention_heads(network);
  if (kernels::opened_gpu().has_tiled_attention(heads, weights, at::kFloat8_e4m3fn)) return {};
  return fmt::format(
      "kv_cache_dtype = fp8_e4m3: needs heads of 64 or 128 and weights in bfloat16 or float16; "
      "these have {} and {}",
      heads.head_dim, c10::toString(weights));
}

}  // namespace

at::ScalarType kv_storage_type(const EngineConfig& config, model::Network& network) {
  return kv_storage_type(config.kv_cache_dtype, network);
}

EngineConfig completed(EngineConfig config, model::Network& network) {
  const model::ModelConfig& model = network.config();
  std::vector<std::string> problems;
  const auto require = [&](bool holds, std::string problem) {
    if (!holds) problems.push_back(std::move(problem));
  };
  if (config.context_length == 0) config.context_length = model.max_positions;
  if (config.eos_token_ids.empty()) config.eos_token_ids = model.eos_token_ids;
  require(config.max_running_requests >= 1,
          fmt::format("max_running_requests = {}: at least 1", config.max_running_requests));
  require(config.max_queued_requests >= 1,
          fmt::format("max_queued_requests = {}: at least 1", config.max_queued_requests));
  require(config.max_prefill_tokens >= 1,
          fmt::format("max_prefill_tokens = {}: at least 1", config.max_prefill_tokens));
  require(config.prefill_beside_decode >= 0,
          fmt::format("prefill_beside_decode = {}: at least 1, or 0 for no other number",
                      config.prefill_beside_decode));
  require(config.context_length >= 1 && config.context_length <= model.max_positions,
          fmt::format("context_length = {}: the model's rotary tables end at {}",
                      config.context_length, model.max_positions));
  require(config.kv_cache_dtype == "auto" || config.kv_cache_dtype == "float32" ||
              config.kv_cache_dtype == "bfloat16" || config.kv_cache_dtype == "fp8_e4m3",
          fmt::format("kv_cache_dtype = {}: auto, float32, bfloat16 or fp8_e4m3",
                      config.kv_cache_dtype));
  if (config.kv_cache_dtype == "fp8_e4m3") {
    const std::string reason = why_no_fp8(network);
    require(reason.empty(), reason);
  }
  const auto weights = network.weights().flat().scalar_type();
  const bool is_on_gpu = network.weights().flat().is_cuda();
  const auto cache_type = config.kv_cache_dtype == "float32" ? at::kFloat : at::kBFloat16;
  require(
      !is_on_gpu || config.kv_cache_dtype == "auto" || config.kv_cache_dtype == "fp8_e4m3" ||
          cache_type == weights,
      fmt::format("kv_cache_dtype = {}: on a GPU the cache has the precision of the weights, or "
                  "fp8_e4m3; leave it at auto",
                  config.kv_cache_dtype));
  require(weights != at::kDouble, "dtype = float64: the engine computes in float32 or bfloat16");
  require(!config.records_experts || model.has_experts(),
          "--enable-return-routed-experts: the model has no experts");
  require(!config.drafts.layer || network.num_draft_layers() > 0,
          "drafts.layer: the network was loaded without its draft layer");
  require(!config.drafts.model || config.draft_model != nullptr, "drafts.model: there is none");
  require(!config.drafts.model || config.mesh->sizes().tp == 1,
          "drafts.model: engines of several ranks compute no draft model");
  if (config.verify_tokens != 0) {
    require(config.verify_tokens > 0 && config.verify_tokens < config.max_prefill_tokens,
            fmt::format("verify_tokens = {}: at least 0, and less than max_prefill_tokens, {}",
                        config.verify_tokens, config.max_prefill_tokens));
    require(config.drafts.most == 0,
            "verify_tokens: drafts of other sources are not verified beside tentative tokens");
    require(!config.records_experts,
            "verify_tokens: choices of experts are not recorded, training makes the same");
    require(state_bytes(network.blocks()) == 0,
            "verify_tokens: the model has layers that keep states, which cannot step back");
  }
  const PageWindow window = page_window(config, network);
  const int64_t page_bytes = window.num_tables() * cache_page_bytes(config, network);
  require(config.kv_cache_bytes >= page_bytes,
          fmt::format("kv_cache_bytes = {}: one page of {} tokens takes {} bytes",
                      config.kv_cache_bytes, kernels::kPageTokens, page_bytes));
  if (const int64_t state = state_bytes(network.blocks()); state > 0) {
    require(num_states_of(config, network) >= 2,
            fmt::format("kv_cache_bytes = {}: the state of one request takes {} bytes, and half of "
                        "the cache has to hold two",
                        config.kv_cache_bytes, state));
  }
  if (!problems.empty()) throw ConfigError(problems);
  return config;
}

int64_t num_states_of(const EngineConfig& config, model::Network& network) {
  return num_states_of(config.kv_cache_bytes, state_bytes(network.blocks()),
                       config.max_running_requests, config.enable_prefix_cache);
}

int64_t num_states_of(int64_t kv_cache_bytes, int64_t state_bytes, int64_t max_running_requests,
                      bool shares_prefixes) {
  if (state_bytes == 0) return 0;
  const int64_t wanted = (shares_prefixes ? 2 : 1) * max_running_requests;
  return std::min({std::max<int64_t>(wanted, 2), kv_cache_bytes / 2 / state_bytes,
                   int64_t{std::numeric_limits<StateId>::max()}});
}

PageWindow page_window(const EngineConfig& config, const model::Network& network) {
  if (!config.gives_pages_back) return {};
  const model::ModelConfig& model = network.config();
  const PageWindow window =
      page_window(network.blocks(), model.window,
                  config.context_length > 0 ? config.context_length : model.max_positions);
  // A draft model sees all tokens, in the pages of layers that do.
  if (config.drafts.model && window.num_groups == 0) return {};
  // Choices of experts lie beside pages and are told when a prompt is whole; pages of layers that see all
  // tokens do not go.
  return config.records_experts && window.num_groups == 0 ? PageWindow{} : window;
}

int64_t cache_page_bytes(const EngineConfig& config, model::Network& network) {
  const at::ScalarType type = kv_storage_type(config, network);
  const int64_t of_network = kv_page_bytes(network, type, page_window(config, network).num_groups);
  return config.draft_model == nullptr
             ? of_network
             : of_network + PagedKvCache::page_bytes(config.draft_model->blocks(), type);
}

int64_t num_pages_of(const EngineConfig& config, model::Network& network) {
  const int64_t states = num_states_of(config, network) * state_bytes(network.blocks());
  const int64_t affordable = (config.kv_cache_bytes - states) / cache_page_bytes(config, network);
  return std::min<int64_t>(affordable, std::numeric_limits<PageId>::max());
}

}  // namespace slime::engine
