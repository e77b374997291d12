#pragma once

/// Which tokens of a conversation are trained: the assistant's, not the prompts'. For supervised
/// fine-tuning.
///
/// A chat template gives text without saying who wrote which part. Four ways to find out (spec
/// section 15), named as users name them in --loss-mask-type:
///   qwen          every message is rendered alone; what the template puts around it is measured
///   once and cut off qwen3         as qwen, but rendered beside an auxiliary message: for
///   templates that treat the last turn differently qwen3_5       rendered once; the assistant's
///   turns are found by their markers <|im_start|> and <|im_end|> distill_qwen  prompt and one
///   answer
///
///   messages  [user "U1", assistant "A1"]  with ChatML, one token per character
///   tokens    <|im_start|>user\nU1<|im_end|>\n<|im_start|>assistant\nA1<|im_end|>\n
///   mask      0 ........................................... 0      1111   (answer, end marker,
///   newline)

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/expected.h"
#include "core/json.h"
#include "core/sample.h"

namespace slime::text {

class ChatTemplate;
class Tokenizer;

enum class LossMaskType { kQwen, kQwen3, kQwen35, kDistillQwen };

/// "qwen", "qwen3", "qwen3_5" or "distill_qwen"; anything else is a failure that lists these.
Expected<LossMaskType> parse_loss_mask_type(std::string_view word);

/// A template and a tokenizer as this file needs them. The functions must not outlive what they
/// refer to.
struct ChatCodec {
  /// The text of messages. `tools` is an array or null.
  std::function<Expected<std::string>(const json::array& messages, const json::value& tools,
                                      bool generation_prompt)>
      render;
  /// Ids without added special tokens; added tokens in the text are recognised.
  std::function<std::vector<TokenId>(std::string_view)> encode;
  /// The bytes an id stands for; empty when unknown.
  std::function<std::string_view(TokenId)> token_bytes;
  /// Whether the vocabulary has this added token.
  std::function<bool(std::string_view)> has_token;
};

/// `now` is what templates that print the date are shown.
ChatCodec make_chat_codec(const ChatTemplate& chat, const Tokenizer& tokenizer,
                          std::chrono::local_seconds now);

struct MaskedTokens {
  std::vector<TokenId> ids;
  std::vector<uint8_t> mask;  // 1: trained; as long as ids
};

/// Tokens from the first trained one to the end; 0 where nothing is trained.
int64_t response_length(std::span<const uint8_t> mask);

/// Measured once per template, by rendering a probe twice (spec 15.1).
struct TemplateLengths {
  int64_t system = 0;      // tokens that the template puts before the first message by itself
  int64_t generation = 0;  // tokens of the assistant's header
};
Expected<TemplateLengths> measure_template(const ChatCodec& codec);

/// The mask of conversations of one model. Immutable; may be used by any number of threads.
class LossMasker final {
 public:
  /// Fails where the template does not show the probe texts, or refuses two user messages in a row.
  static Expected<LossMasker> make(LossMaskType type, ChatCodec codec);

  /// `messages`: objects with role, content and optionally step_loss_mask: other than 1, the
  /// message is not trained. `tools`: an array or null. Fails where the template does, and on
  /// messages without the markers that the type needs.
  Expected<MaskedTokens> mask(const json::array& messages, const json::value& tools) const;

 private:
  LossMasker(LossMaskType type, ChatCodec codec, TemplateLengths lengths)
      : type_(type), codec_(std::move(codec)), lengths_(lengths) {}
  Expected<std::vector<TokenId>> tokenize(const json::array& messages, const json::value& tools,
                                          bool generation_prompt) const;
  Expected<MaskedTokens> mask_one_by_one(const json::array& messages,
                                         const json::value& tools) const;
  Expected<MaskedTokens> mask_by_markers(const json::array& messages,
                                         const json::value& tools) const;
  Expected<MaskedTokens> mask_single_answer(const json::array& messages,
                                            const json::value& tools) const;
  Expected<std::vector<TokenId>> tokens_of_block(const json::array& block, bool is_first,
                                                 const json::value& tools) const;

  LossMaskType type_;
  ChatCodec codec_;
  TemplateLengths lengths_;
};

}  // namespace slime::text
