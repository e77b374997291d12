#pragma once

/// A golden case's params as a user would type them. What a test computes with comes out of the
/// flag table, the rules between flags and setup/train_config, as in `slime train`: a flag that is
/// mapped wrongly fails the golden cases it belongs to.

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "config/run_config.h"
#include "core/json.h"
#include "train/train_batch.h"
#include "train/trainer.h"

namespace slime::golden {

using Words = std::vector<std::string>;

/// {"eps_clip": 0.2, "use_tis": true, "use_kl_loss": false, "eps_clip_c": null} gives
/// --eps-clip 0.2 --use-tis. `others` are params that are no flags: the test reads them itself.
Words words_of(const json::object& params, std::initializer_list<std::string_view> others = {});

/// What `slime train` makes of a command line.
struct Setup {
  config::RunConfig flags;
  train::TrainConfig train;
  train::TrainBatchConfig batch;
};

/// The words come after those of a small run that lacks nothing, and win over them. Throws
/// ConfigError for what `slime train` would refuse, and for words that it would ignore.
Setup setup_of(const Words& words, const Words& more = {});

}  // namespace slime::golden
