#pragma once

/// Vocabularies of the networks that read the same tokens: the actor's, the reference's, the teacher's and
/// the critic's.

#include <string>
#include <vector>

#include "config/run_config.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::setup {

/// A network next to the actor's: the flag that names it, the directory that was found for it.
struct OtherModel {
  std::string flag, directory;
};

/// Those of the run whose directory is not --hf-checkpoint. Throws ConfigError for a --ref-load
/// without a model.
std::vector<OtherModel> other_models(const config::RunConfig& config);

/// Throws ConfigError where a reference, teacher or critic knows other tokens than `tokenizer`, has no
/// row for some of them, or rotates long sequences by another switch (ModelConfig::rotary_switch()).
/// Where a directory has no tokenizer, the sizes of the embeddings must be the same.
void check_vocabularies(const config::RunConfig& config, const text::Tokenizer& tokenizer,
                        const std::vector<OtherModel>& others);

}  // namespace slime::setup
