#pragma once

/// Vocabularies of the networks that read the same tokens: the actor's, the reference's, the teacher's and
/// the critic's.

#include "config/run_config.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::setup {

/// Throws ConfigError where a reference, teacher or critic knows other tokens than `tokenizer`, has no
/// row for some of them, or rotates long sequences by another switch (ModelConfig::rotary_switch()).
/// Where a directory has no tokenizer, the sizes of the embeddings must be the same.
void check_vocabularies(const config::RunConfig& config, const text::Tokenizer& tokenizer);

}  // namespace slime::setup
