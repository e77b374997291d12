#pragma once

/// Reader of a tiktoken rank file, as Kimi (tiktoken.model) and the first Qwen (qwen.tiktoken) ship
/// them: one token a line, its bytes in base64, a space, its rank, which is also its id.
///
/// The pattern that cuts words is not in the file. It is "pat_str" (or "pattern") of
/// tokenizer_config.json when that has one; otherwise the tokenizer_class decides, as the published
/// Python classes do:
///   TikTokenTokenizer                                     Kimi's; ids up to 256 above the ranks
///   are <|reserved_token_N|> QWenTokenizer                                         Qwen's, NFC
///   first; <|endoftext|> ... <|extra_204|> above the ranks none, PreTrainedTokenizerFast,
///   TokenizersBackend      cl100k's, which `transformers` assumes

#include <string_view>

#include "core/json.h"
#include "text/tokenizer/tokenizer_definition.h"

namespace slime::text {

/// Special tokens of tokenizer_config.json itself are added by apply_tokenizer_config(), which
/// comes after. Throws ConfigError: lines start with `where` and name the line of the file.
TokenizerDefinition read_tiktoken_file(std::string_view ranks, const json::value& config,
                                       std::string_view where);

}  // namespace slime::text
