#pragma once

/// Prompts of a run and what became of each of them: from a file, from a stream of lines, or from a
/// class of the user's; chosen once.

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "buffer/data_source.h"
#include "buffer/dataset.h"
#include "config/run_config.h"
#include "core/json.h"
#include "loop/group_source.h"
#include "loop/outcome_log.h"
#include "loop/unsaved_steps.h"
#include "plugin/plugins.h"
#include "setup/prompts.h"

namespace slime::loop {

/// Where prompts come from.
class PromptOrigin {
 public:
  virtual ~PromptOrigin() = default;

  /// Prompts in the order in which they are given out, and groups that wait.
  virtual buffer::DataSource& prompts() = 0;
  /// Rows of a file, whose number is known; of a stream or a class of the user's: nothing.
  virtual const std::optional<buffer::Dataset>& rows() const;
  /// The same, for the run that goes on in the place of this one.
  virtual std::optional<buffer::Dataset> give_rows() { return std::nullopt; }
  /// Whether a copy of prompts() is all that has to be kept to go back to a moment.
  virtual bool can_go_back() const { return true; }
  /// Goes on behind step `step`, with groups that wait; of `under_way`, ordinals, it did not have.
  virtual void load(int64_t /*step*/, const std::set<int64_t>& /*under_way*/) {}
  /// Saves what is kept elsewhere, beside the checkpoint behind step `step`.
  virtual void save(int64_t /*step*/) {}
  /// What load() needs to know of groups that are `open` then goes into `state`.
  virtual void add_open_groups(json::object& /*state*/, const std::vector<Group>& /*open*/) const {}
};

/// A file (`kept`: read by a run before this one), a stream, or nothing, where rows are no prompts.
std::unique_ptr<PromptOrigin> open_prompts(const config::RunConfig& config,
                                           const setup::ModelText& text,
                                           std::optional<buffer::Dataset> kept);
/// --data-source-path.
std::unique_ptr<PromptOrigin> open_users_prompts(const config::RunConfig& config,
                                                 const setup::ModelText& text,
                                                 plugin::Plugins& plugins);

struct RunData {
  std::unique_ptr<setup::ModelText> text;  // its address stays: a data set renders with it
  std::unique_ptr<PromptOrigin> origin;
  std::unique_ptr<OutcomeLog> outcomes;
  std::unique_ptr<UnsavedSteps> unsaved;  // null: the run keeps none

  buffer::DataSource& prompts() const { return origin->prompts(); }
  const std::optional<buffer::Dataset>& rows() const { return origin->rows(); }
  /// Tokens; 0: not known.
  int64_t longest_prompt() const { return rows() ? rows()->longest_prompt() : 0; }
};

}  // namespace slime::loop
