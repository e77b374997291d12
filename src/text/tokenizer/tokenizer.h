#pragma once

/// Text to token ids and back, exactly as the `tokenizers` library does it for the same model
/// directory.
///
/// Encoding runs in five stages, each its own file:
///   added tokens   <|im_start|> and its like are cut out first text/tokenizer/added_tokens.h
///   normalizer     Unicode forms, replacements text/tokenizer/normalizer.h pre-tokenizer  cuts
///   text into words                                  text/tokenizer/pre_tokenizer.h model
///   byte-pair merges inside each word                     text/tokenizer/bpe.h post-processor puts
///   special tokens such as a BOS around the result   (TokenizerSpec)
/// Decoding joins token bytes and turns them into UTF-8 (text/tokenizer/token_decoder.h). Who reads
/// the files: text/tokenizer/tokenizer_json.h, text/tokenizer/tiktoken_file.h,
/// text/tokenizer/tokenizer_config.h.
///
///   auto tokenizer = Tokenizer::load("Qwen3-0.6B");
///   tokenizer->encode("UPPER lower")                      -> {3124, 9654, 4722 ...}
///   tokenizer->decode(ids, /*skip_special_tokens=*/true)  -> "UPPER lower"

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/sample.h"
#include "text/tokenizer/placed_token.h"

namespace slime::text {

struct EncodeOptions {
  /// Add what the post-processor adds (a BOS in Llama 3, nothing in Qwen).
  bool add_special_tokens = false;
  /// Treat added tokens marked "special" as plain text: user input cannot forge <|im_end|>.
  bool split_special_tokens = false;
};

/// Immutable after loading: every member may be called from any number of threads at once.
class Tokenizer final {
 public:
  /// Reads tokenizer.json, or else a tiktoken rank file (*.tiktoken, tiktoken.model), with
  /// tokenizer_config.json and special_tokens_map.json where present. Throws ConfigError that names
  /// file and part when something is missing, malformed, above a limit, or of a kind we do not
  /// know.
  static std::unique_ptr<Tokenizer> load(const std::filesystem::path& model_directory);
  /// The same from the files' contents; `config_json` may be empty. For tests and fuzzing.
  static std::unique_ptr<Tokenizer> from_json(std::string_view tokenizer_json,
                                              std::string_view config_json);
  static std::unique_ptr<Tokenizer> from_tiktoken(std::string_view ranks,
                                                  std::string_view config_json);

  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// Bytes that are not UTF-8 are read as U+FFFD. Throws ConfigError when a pattern of the
  /// tokenizer exceeds its match limit on this text.
  std::vector<TokenId> encode(std::string_view text, EncodeOptions options = {}) const;

  /// The tokens that encode() gives, each with its place in `text`, which is valid UTF-8. Where the
  /// tokenizer rewrites text (Unicode forms, spaces), a token's place is that of what it was made
  /// from. No added token is read across a seam: a place in `text`, ascending. Throws ConfigError
  /// when the tokens cannot be laid over the text.
  std::vector<PlacedToken> encode_placed(std::string_view text,
                                         std::span<const uint32_t> seams = {}) const;

  /// What add_special_tokens puts in front of a text: a BOS, or nothing.
  const std::vector<TokenId>& prefix() const;

  /// The spellings of its added tokens.
  std::vector<std::string> added_tokens() const;

  /// Ids outside the vocabulary contribute nothing. The result is always valid UTF-8.
  std::string decode(std::span<const TokenId> ids, bool skip_special_tokens) const;

  /// One more than the largest id, added tokens included. A model's embedding may have more rows.
  int64_t vocab_size() const;

  /// The id of a token as the vocabulary spells it ("<|im_end|>", "\u0120the").
  std::optional<TokenId> id_of(std::string_view token) const;
  /// The bytes that `id` adds to a decoded text; empty when there is no such id.
  std::string_view token_bytes(TokenId id) const;
  /// True for added tokens marked special, and for those that tokenizer_config.json names
  /// (eos_token, ...).
  bool is_special(TokenId id) const;

  /// "bos_token", "eos_token", "pad_token", "unk_token", ... -> spelling, as tokenizer_config.json
  /// and special_tokens_map.json name them: what a chat template sees. Null entries are absent.
  const std::map<std::string, std::string>& special_tokens() const;

 private:
  friend class StreamDetokenizer;
  struct Parts;
  explicit Tokenizer(std::unique_ptr<const Parts> parts);
  std::unique_ptr<const Parts> parts_;
};

/// Decodes one id at a time. The bytes of all tokens form one stream; push() releases every
/// character decided so far, holds back the bytes of an incomplete but still possible one, and
/// replaces each maximal invalid prefix by U+FFFD. All pieces and the flush, concatenated, are the
/// decoded text. One object per sequence, one thread at a time; the tokenizer must outlive it.
class StreamDetokenizer final {
 public:
  explicit StreamDetokenizer(const Tokenizer& tokenizer, bool skip_special_tokens = false);

  /// The text that this id releases, often empty inside multi-byte characters.
  std::string push(TokenId id);
  /// What was held back, at the end of the sequence. The object is as new afterwards.
  std::string flush();

 private:
  std::string release(std::string text);

  const Tokenizer* tokenizer_;
  bool skip_special_tokens_;
  bool is_first_ = true;          // no token yet
  std::string undecided_;         // bytes of an incomplete character, at most 3
  std::size_t num_stripped_ = 0;  // of what the decoder strips from the start
  std::string held_back_;         // what it strips from the end, should this be the end
};

}  // namespace slime::text
