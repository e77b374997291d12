#include "cli/logprobs.h"

/// slime logprobs: what a model thinks of token sequences, one JSON line each.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "cli/by_name.h"
#include "cli/options.h"
#include "core/error.h"
#include "core/json_lines.h"
#include "kernels/linear_logprob.h"
#include "model/adapter_files.h"
#include "model/network.h"
#include "model/tree_attention.h"

namespace slime::cli {
namespace {

constexpr int64_t kRowsAtOnce = 256;  // of logits, to keep a long sequence's memory small

template <typename T>
json::array to_json(const Tensor& values) {
  const Tensor flat = values.contiguous();
  json::array out;
  for (int64_t i = 0; i < flat.numel(); ++i) out.push_back(flat.const_data_ptr<T>()[i]);
  return out;
}

json::object score(model::Network& network, const std::vector<int32_t>& ids, bool with_logits) {
  model::TokenBatch batch;
  const auto size = static_cast<int64_t>(ids.size());
  batch.ids_T = at::tensor(ids, at::kInt).to(at::kLong);
  const model::ModelConfig& config = network.config();
  const bool is_long = config.rotary_switch() > 0 && size > config.rotary_switch();
  const int64_t first_angle = is_long ? config.max_positions : 0;
  batch.rotary_row_T = at::arange(first_angle, first_angle + size, at::kLong);
  batch.segments = {{0, size, -1}};
  model::TreeAttention attention(batch);
  const Tensor hidden_TH = network.forward(batch, attention);

  json::array log_probs, entropies, argmax, logits;
  for (int64_t begin = 0; begin < size; begin += kRowsAtOnce) {
    const int64_t end = std::min(size, begin + kRowsAtOnce);
    const Tensor logits_RV = network.logits(hidden_TH.slice(0, begin, end)).to(at::kFloat);
    const Tensor log_p = logits_RV.log_softmax(1);
    const int64_t scored = std::min(end, size - 1) - begin;  // the last position predicts nothing
    const Tensor next = batch.ids_T.slice(0, begin + 1, begin + 1 + scored);
    const Tensor of_next = log_p.narrow(0, 0, scored).gather(1, next.unsqueeze(1));
    for (auto& x : to_json<float>(of_next)) log_probs.push_back(std::move(x));
    for (auto& x : to_json<float>(-(log_p.exp() * log_p).sum(1))) entropies.push_back(std::move(x));
    for (auto& x : to_json<int64_t>(logits_RV.argmax(1))) argmax.push_back(std::move(x));
    for (int64_t row = 0; with_logits && row < end - begin; ++row)
      logits.push_back(to_json<float>(logits_RV[row]));
  }
  json::object out;
  out["logprobs"] = std::move(log_probs);
  out["entropies"] = std::move(entropies);
  out["argmax"] = std::move(argmax);
  if (with_logits) out["logits"] = std::move(logits);
  return out;
}

void check_ids(const JsonLines& input, const std::vector<int32_t>& ids,
               const model::ModelConfig& config) {
  std::vector<std::string> problems;
  const auto size = static_cast<int64_t>(ids.size());
  if (size == 0)
    problems.push_back(
        fmt::format("{}: ids is empty; at least one token is needed", input.where()));
  if (size > config.max_positions) {
    problems.push_back(fmt::format("{}: {} ids, but the model has {} positions", input.where(),
                                   size, config.max_positions));
  }
  for (const int32_t id : ids) {
    if (id < config.vocab_size) continue;
    problems.push_back(fmt::format("{}: id {} is not below the vocabulary's size, {}",
                                   input.where(), id, config.vocab_size));
    break;
  }
  if (!problems.empty()) throw ConfigError(problems);
}

}  // namespace

int logprobs(std::span<const std::string> arguments) {
  CLI::App app(
      "Log-probs, entropies and best tokens of token sequences: {\"ids\": [...]} in, one JSON line "
      "out.",
      "slime logprobs");
  std::string directory, adapter, dtype, file;
  bool with_logits = false;
  app.add_option("--model", directory, "Model directory: config.json and safetensors; or a name")
      ->required();
  app.add_option("--adapter", adapter, "PEFT directory of an adapter beside the model's weights");
  app.add_option("--dtype", dtype, "float32 or bfloat16; default: as the file says")
      ->check(CLI::IsMember({"float32", "bfloat16", "float16", "float64"}));
  app.add_flag("--logits", with_logits, "Also all logits");
  app.add_option("FILE", file, "JSON lines; standard input when absent or \"-\"");
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  directory = model_by_name(directory, hub::Wanted::kModel, "--model", "slime logprobs");

  at::NoGradGuard no_grad;
  if (dtype.empty()) dtype = model::read_model_config(directory).dtype;
  const auto network = model::load_network(directory, model::Precision::of(dtype));
  if (!adapter.empty()) model::load_adapters(*network, adapter);
  JsonLines input(file);
  while (const auto object = input.next()) {
    const std::vector<int32_t> ids = input.fields(*object).token_ids("ids", int64_t{1} << 31);
    check_ids(input, ids, network->config());
    write_json_line(score(*network, ids, with_logits));
  }
  return 0;
}

}  // namespace slime::cli
