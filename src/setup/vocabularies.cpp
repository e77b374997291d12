#include "setup/vocabularies.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "model/config.h"
#include "setup/named_model.h"

namespace slime::setup {
namespace {

/// Null where the directory has none: it may hold weights alone.
std::unique_ptr<text::Tokenizer> tokenizer_of(const std::string& directory) {
  const std::filesystem::path folder(directory);
  if (!std::filesystem::exists(folder / "tokenizer.json")) return nullptr;
  return text::Tokenizer::load(folder);
}

/// The first id that means something else, in words; empty: none.
std::string difference(const text::Tokenizer& actor, const text::Tokenizer& other) {
  const int64_t count = std::min(actor.vocab_size(), other.vocab_size());
  for (int64_t i = 0; i < count; ++i) {
    const auto id = static_cast<TokenId>(i);
    if (actor.token_bytes(id) != other.token_bytes(id)) {
      return fmt::format("its id {} is {}, the actor's {}", id, json_text(other.token_bytes(id)),
                         json_text(actor.token_bytes(id)));
    }
  }
  return {};
}

}  // namespace

std::vector<OtherModel> other_models(const config::RunConfig& config) {
  const std::string& own_critic =
      config.critic != nullptr ? config.critic->critic_load : config.critic_load;
  std::vector<OtherModel> others;
  if (config.needs_reference())
    others.push_back({"--ref-load", reference_directory(config, [](const std::string&) {})});
  if (config.use_opd && config.opd_type == "megatron")
    others.push_back({"--opd-teacher-load", config.opd_teacher_load});
  if (config.has_critic() && !own_critic.empty()) others.push_back({"--critic-load", own_critic});
  std::erase_if(others, [&](const OtherModel& other) {
    return other.directory == config.hf_checkpoint.get();
  });
  return others;
}

void check_vocabularies(const config::RunConfig& config, const text::Tokenizer& tokenizer,
                        const std::vector<OtherModel>& others) {
  if (others.empty()) return;
  const model::ModelConfig actor = model::read_model_config(config.hf_checkpoint);
  const int64_t rows = actor.vocab_size;
  std::vector<std::string> problems;
  for (const auto& [flag, directory] : others) {
    const model::ModelConfig other = model::read_model_config(directory);
    const int64_t others_rows = other.vocab_size;
    if (actor.rotary_switch() != other.rotary_switch() ||
        (actor.rotary_switch() > 0 && actor.max_positions != other.max_positions)) {
      problems.push_back(fmt::format(
          "{} {}: its rope is longrope from {} of {} positions on, the actor's from {} of {}", flag,
          directory, other.rotary_switch(), other.max_positions, actor.rotary_switch(),
          actor.max_positions));
    }
    const auto theirs = tokenizer_of(directory);
    if (theirs != nullptr) {
      if (const std::string what = difference(tokenizer, *theirs); !what.empty())
        problems.push_back(fmt::format("{} {}: has another vocabulary than --hf-checkpoint {}: {}",
                                       flag, directory, config.hf_checkpoint, what));
    } else if (others_rows != rows) {
      problems.push_back(
          fmt::format("{} {}: has {} ids and no tokenizer.json, --hf-checkpoint {} has {}: whether "
                      "they are the "
                      "same tokens cannot be seen",
                      flag, directory, others_rows, config.hf_checkpoint, rows));
    }
    if (const int64_t needed = std::min(rows, tokenizer.vocab_size()); others_rows < needed) {
      problems.push_back(fmt::format("{} {}: has {} ids, the actor's tokens need {}", flag,
                                     directory, others_rows, needed));
    }
  }
  if (!problems.empty()) throw ConfigError(problems);
}

}  // namespace slime::setup
