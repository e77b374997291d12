#pragma once

/// The table of reasoning formats: the marks around a model's thoughts.

#include <span>
#include <string_view>
#include <vector>

#include "core/expected.h"
#include "text/messages/marks.h"

namespace slime::text {

struct ReasoningFormat {
  std::string_view name;
  std::span<const Mark> marks;  // one to open, one to close; none for harmony
  /// What the opening mark is followed by and is no thought: "thought" of Gemma 4.
  std::string_view label = {};
  /// Without marks: thoughts stay in the content, and this is written in front of it where the
  /// prompt ends with it.
  std::string_view opening = {};
  bool is_harmony = false;
};

/// The format that a name of SGLang's `--reasoning-parser`, or of vLLM's, stands for. Fails with the
/// names that there are.
Expected<const ReasoningFormat*> find_reasoning_format(std::string_view name);

/// Names that find_reasoning_format() takes.
std::vector<std::string_view> reasoning_format_names();

/// The format that a chat template writes thoughts in; nullptr when it writes none that is known.
const ReasoningFormat* reasoning_format_of_template(std::string_view chat_template);

/// Where a prompt leaves the model: in front of its message, or inside of a part of it.
enum class PromptTail : uint8_t { kMessage, kReasoning, kContent };

/// Reads the end of a rendered prompt. Its last mark counts where nothing but white space follows;
/// with `continues_message`, where the prompt ends inside of a message of the assistant, what
/// follows does not matter. `prompt` may be its last part alone.
PromptTail prompt_tail(const ReasoningFormat& format, std::string_view prompt,
                       bool continues_message = false);

}  // namespace slime::text
