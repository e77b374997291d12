#pragma once

/// Prompts of a class of the user's (--data-source-path), which lives in one host: get_samples,
/// add_samples, save, load. What it gives out has its outcome in the ledger like any other prompt.

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "buffer/dataset.h"
#include "buffer/prompt_supply.h"
#include "config/run_config.h"
#include "plugin/hosts.h"
#include "plugin/question_handler.h"
#include "plugin/read_sample.h"
#include "setup/prompts.h"

namespace slime::plugin {

class UsersPrompts final : public buffer::PromptSupply {
 public:
  /// `hook`: the class's place among the functions of the hosts. References outlive the object.
  UsersPrompts(const config::RunConfig& config, const setup::ModelText& text, Hosts& hosts,
               QuestionHandler& handler, int hook, const SampleLimits& limits);

  // All throw ConfigError with the reason when the class's own fails.

  /// Prompts without tokens are rendered, where they are messages, and tokenised.
  std::vector<Group> take(int64_t count) override;
  void give_back(const std::vector<Group>& groups) override;

  /// Beside the checkpoint behind step `step`.
  void save(int64_t step);
  /// Goes on behind step `step`. `waiting`: groups that had been given back, and those that were under
  /// way (`under_way`, ordinals). A class that has a buffer then has kept the former itself; it gets the
  /// latter. Another one gets all.
  void load(int64_t step, const std::vector<Group>& waiting, const std::set<int64_t>& under_way);

 private:
  Payload call(std::string_view method, std::function<json::object(Columns&)> arguments);
  Group read(const json::value& record, const Columns& columns);
  void tokenise(Sample& sample, const json::value* prompt) const;

  const config::RunConfig& config_;
  const setup::ModelText& text_;
  Hosts& hosts_;
  QuestionHandler& question_handler_;
  const int hook_;
  const SampleLimits limits_;
  const buffer::RenderFn render_;                       // empty without a chat template
  const buffer::TokenizeMessagesFn tokenize_messages_;  // the same, and with a plain tokenizer
  std::map<int64_t, Group> given_back_;                 // by ordinal: those that the class has
};

}  // namespace slime::plugin
