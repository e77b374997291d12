#pragma once

/// Everything that a tokenizer's files say, as plain data: what the file readers produce and
/// Tokenizer is made of.

#include <map>
#include <string>
#include <vector>

#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/token_decoder.h"
#include "text/tokenizer/vocabulary.h"

namespace slime::text {

struct TokenizerDefinition {
  Vocabulary vocabulary;  // of the model, without added tokens
  std::vector<Merge> merges;
  BpeOptions bpe;
  std::map<std::string, AddedToken> added_tokens;  // by content
  std::vector<NormalizerStep> normalizer;
  std::vector<PreTokenizerStep> pre_tokenizer;
  std::vector<DecoderStep> decoder;
  std::vector<TokenId> prefix;                        // what the post-processor puts before a text
  std::vector<TokenId> suffix;                        // and behind it
  std::map<std::string, std::string> special_tokens;  // "eos_token" -> "<|im_end|>"
};

}  // namespace slime::text
