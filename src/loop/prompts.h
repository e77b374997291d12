#pragma once

/// Prompt data as the user's flags describe it: files, keys, chat template, tokenizer.

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "buffer/dataset.h"
#include "buffer/prompt_stream.h"
#include "config/eval_config.h"
#include "config/run_config.h"
#include "text/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::loop {

/// The model's words: what text becomes before a model reads it, and after. `chat` is absent when
/// the model has no template.
struct ModelText {
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::optional<text::ChatTemplate> chat;
  std::chrono::local_days today;  // what templates that print the date are shown
};

/// Throws ConfigError when there is no tokenizer, or no template although one is needed.
ModelText load_model_text(const std::string& model_directory, bool needs_template,
                          std::chrono::local_days today);

/// How messages of training become text. `text` has a template and outlives the function.
buffer::RenderFn render_prompts(const config::RunConfig& config, const ModelText& text);

/// The prompts of training. Throws ConfigError naming file and line of every bad row.
buffer::Dataset load_prompts(const config::RunConfig& config, const ModelText& text);

/// The same, read while the run trains (--streaming-data).
std::unique_ptr<buffer::PromptStream> stream_prompts(const config::RunConfig& config,
                                                     const ModelText& text);

/// The prompts of one evaluation data set.
buffer::Dataset load_eval_prompts(const config::RunConfig& config, const ModelText& text,
                                  const config::EvalSetConfig& set);

}  // namespace slime::loop
