#pragma once

/// Start of a training run: everything that is worked out once, from flags, model directory and
/// checkpoint.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "buffer/dataset.h"
#include "buffer/ledger.h"
#include "config/eval_config.h"
#include "config/parse_flags.h"
#include "config/run_config.h"
#include "core/clock.h"
#include "engine/engine.h"
#include "model/config.h"
#include "setup/prompts.h"
#include "train/checkpoint.h"

namespace slime::roles {

/// Shape flags of a script that was written for another model are found here, all at once. Throws
/// ConfigError.
void check_shape(const config::RunConfig& config, const model::ModelConfig& model);

/// Rollout steps of the whole run. Epochs are not cut to whole batches: each row is in as many steps as
/// there are epochs, and the last step is filled with rows of one more.
int64_t planned_rollouts(const config::RunConfig& config,
                         const std::optional<buffer::Dataset>& prompts);

/// With what the last step of a run of `--num-epoch` is filled, where epochs do not fill it.
std::vector<std::string> epoch_notes(const config::RunConfig& config, int64_t num_rows);

/// `checkpoint` is one of the run that the ledger is of. Without one the run starts over, or goes
/// on from another run's checkpoint, and a ledger that is there says so.
std::unique_ptr<buffer::Ledger> open_ledger(const std::filesystem::path& path,
                                            const std::optional<train::Checkpoint>& checkpoint);

/// The day that chat templates show: that on which the run began, so that a run continued later
/// renders the same prompts.
std::chrono::local_days first_day(const std::optional<train::Checkpoint>& checkpoint,
                                  const Clock& clock);

/// What the flags alone say of an engine.
engine::EngineConfig engine_settings(const config::RunConfig& config);
/// Of the run's engines of this model: layers of gated delta nets cannot step back, and a draft layer that
/// config.json does not tell of, or that is not computed, drafts nothing.
engine::DraftSettings draft_settings(const config::RunConfig& config,
                                     const model::ModelConfig& model);
/// Treatment of draft layers in a trained network: computed with --enable-mtp-training.
model::DraftLayers trained_draft_layers(const config::RunConfig& config);
/// The same in the networks of its engines: also computed where a trainer has them, all of whose weights are
/// published. Reads config.json of --hf-checkpoint where the run wants drafts of them.
model::DraftLayers engine_draft_layers(const config::RunConfig& config);
engine::EngineConfig make_engine_config(const config::RunConfig& config,
                                        const setup::ModelText& text, int64_t kv_cache_bytes);

/// Fields that a flag names and no row has, a sentence each: the name may be misspelt. `whose`: the
/// rows that were read.
std::vector<std::string> missing_fields(const buffer::Dataset& rows,
                                        const config::RunConfig& config,
                                        const config::ParsedFlags& flags,
                                        const std::string& whose = "--prompt-data");

/// The same of an evaluation set, where it names other fields than the training rows have.
std::vector<std::string> missing_fields(const buffer::Dataset& rows,
                                        const config::RunConfig& config,
                                        const config::EvalSetConfig& set);

/// What is odd about the tokens that end a response (engine/end_tokens.h).
std::vector<std::string> end_token_notes(const config::RunConfig& config,
                                         const setup::ModelText& text);

/// Whether prompts are conversations, in training or in an evaluation.
bool needs_template(const config::RunConfig& config, bool evaluates);

}  // namespace slime::roles
