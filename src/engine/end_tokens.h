#pragma once

/// End tokens of a model with its tokenizer: those of config.json and generation_config.json, and the
/// tokenizer's eos_token, which base models that were taught to chat have nowhere else.

#include <string>
#include <vector>

#include "core/sample.h"

namespace slime::model {
struct ModelConfig;
}
namespace slime::text {
class Tokenizer;
}

namespace slime::engine {

struct EndTokens {
  std::vector<TokenId> ids;
  /// What a person should know: an end token that the tokenizer alone names, a spelling that is no
  /// token. One sentence each.
  std::vector<std::string> notes;
};

/// `tokenizer` may be null. Ids that the model's embedding does not have are left out, with a note.
EndTokens end_tokens(const model::ModelConfig& model, const text::Tokenizer* tokenizer);

}  // namespace slime::engine
