#include "tinker/lora_form.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "core/error.h"

namespace slime::tinker {
namespace {

constexpr double kAlpha = 32;
constexpr const char* kHead = "lm_head";

bool is_feed_forward(std::string_view module) {
  static constexpr auto kWords =
      std::to_array<std::string_view>({"mlp", "experts", "feed_forward", "ffn"});
  return std::ranges::any_of(
      kWords, [&](std::string_view word) { return module.find(word) != std::string_view::npos; });
}

bool is_wanted(const LoraWish& wish, const model::AdapterModule& module) {
  if (module.kind == model::AdapterModule::Kind::kHead) return wish.trains_output;
  if (!module.is_linear) return false;
  return is_feed_forward(module.name) ? wish.trains_mlp : wish.trains_attention;
}

std::string last_word(const std::string& module) {
  return module.substr(module.rfind('.') + 1);  // npos + 1 is 0
}

}  // namespace

LoraWish read_lora(const FieldReader& body, int64_t most_rank, uint64_t seed) {
  LoraWish wish{.seed = seed};
  const auto lora = body.fields("lora_config");
  if (!lora) return wish;
  wish.rank = lora->integer("rank", 0, most_rank).value_or(0);
  if (const auto given = lora->integer("seed")) wish.seed = static_cast<uint64_t>(*given);
  wish.trains_attention = lora->boolean("train_attn").value_or(true);
  wish.trains_mlp = lora->boolean("train_mlp").value_or(true);
  wish.trains_output = lora->boolean("train_unembed").value_or(true);
  return wish;
}

json::object to_json(const LoraWish& wish) {
  return {{"rank", wish.rank},
          {"seed", static_cast<int64_t>(wish.seed)},
          {"train_attn", wish.trains_attention},
          {"train_mlp", wish.trains_mlp},
          {"train_unembed", wish.trains_output}};
}

model::AdapterForm form_of(const LoraWish& wish, const model::ModelConfig& model,
                           const std::string& base_model) {
  const std::vector<model::AdapterModule> modules = model::modules_of(model);
  std::set<std::string> others;  // words that would hit something else too
  for (const model::AdapterModule& module : modules)
    if (!is_wanted(wish, module)) others.insert(last_word(module.name));
  std::set<std::string> targets;
  for (const model::AdapterModule& module : modules) {
    if (!is_wanted(wish, module)) continue;
    const std::string word = last_word(module.name);
    targets.insert(others.contains(word) ? module.name : word);
  }
  if (targets.empty())
    throw ConfigError(
        "lora_config: train_attn, train_mlp and train_unembed leave nothing to train");
  model::AdapterConfig config;
  config.rank = wish.rank;
  config.alpha = kAlpha;
  config.targets.assign(targets.begin(), targets.end());
  config.base_model = base_model;
  return model::form_of(config, model);
}

json::object describe(const model::AdapterForm& form) {
  bool attention = false, mlp = false, output = false;
  for (const model::AdapterForm::Pair& pair : form.pairs) {
    const bool is_head = pair.module == kHead;
    output |= is_head;
    mlp |= !is_head && is_feed_forward(pair.module);
    attention |= !is_head && !is_feed_forward(pair.module);
  }
  return {{"is_lora", true},
          {"lora_rank", form.config.rank},
          {"train_unembed", output},
          {"train_mlp", mlp},
          {"train_attn", attention}};
}

}  // namespace slime::tinker
