#pragma once

/// For tests: an engine without a model that answers every request with a fixed text, one token per
/// step, on its own thread.

#include <memory>
#include <string>

#include "engine/scripted_engine.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::engine {

/// One token per printable ASCII character, its code as id; <|im_end|> is 127.
std::unique_ptr<text::Tokenizer> make_ascii_tokenizer();
inline constexpr TokenId kEndId = 127;

/// An update of the weights takes 50 ms, in which the new version makes tokens already. Directories
/// called "qwen2" have another shape.
class FakeEngine final : public ScriptedEngine {
 public:
  /// Log-prob of the i-th token is -(i + 1) / 2. After the text comes <|im_end|>. An empty text
  /// never ends: "a" repeats.
  explicit FakeEngine(const std::string& text);
};

}  // namespace slime::engine
