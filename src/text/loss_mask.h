#pragma once

/// Loss mask of a conversation: which of its tokens are trained. The assistant's, not the prompts'.
///
///   messages  [user "U1", assistant "A1"]  with ChatML, one token per character
///   tokens    <|im_start|>user\nU1<|im_end|>\n<|im_start|>assistant\nA1<|im_end|>\n
///   mask      0 ........................................... 0      1111   (answer, end marker,
///   newline)
///
/// There is one way to find the answers (text/conversation.h). The types of the original remain as
/// names of families of templates: a name that does not fit the model's template is refused.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/expected.h"
#include "core/json.h"
#include "core/sample.h"
#include "text/conversation.h"

namespace slime::text {

/// As --loss-mask-type names them: any template; ChatML (three names); DeepSeek's marks.
enum class LossMaskType { kAuto, kQwen, kQwen3, kQwen35, kDistillQwen };

/// "auto", "qwen", "qwen3", "qwen3_5" or "distill_qwen"; anything else is a failure that lists
/// these.
Expected<LossMaskType> parse_loss_mask_type(std::string_view word);

/// Which answers of a conversation are trained, as --trained-answers names them.
enum class TrainedAnswers {
  kAll,
  kLast,       // those after the last message of a user
  kUnchanged,  // those that the template renders as it did when they were written
};

/// "all", "last" or "unchanged"; anything else is a failure that lists these.
Expected<TrainedAnswers> parse_trained_answers(std::string_view word);

struct MaskedTokens {
  std::vector<TokenId> ids;
  std::vector<uint8_t> mask;  // 1: trained; as long as ids
};

/// Tokens from the first trained one to the end; 0 where nothing is trained.
int64_t response_length(std::span<const uint8_t> mask);

/// The mask of conversations of one model. Immutable; may be used by any number of threads.
class LossMasker final {
 public:
  LossMasker(ConversationRenderer renderer, LossMaskType type, TrainedAnswers answers)
      : renderer_(std::move(renderer)), type_(type), answers_(answers) {}

  /// `messages`: objects with role, content and optionally step_loss_mask: 0, the message is not
  /// trained; 1 or null, it is. `tools`: an array or null. Fails where the template does, where an
  /// answer's place cannot be told, where the type does not fit the template, and at other masks.
  Expected<MaskedTokens> mask(const json::array& messages, const json::value& tools) const;

 private:
  Expected<std::vector<Answer>> trained(const RenderedConversation& conversation,
                                        const json::array& messages,
                                        const json::value& tools) const;

  ConversationRenderer renderer_;
  LossMaskType type_;
  TrainedAnswers answers_;
};

}  // namespace slime::text
