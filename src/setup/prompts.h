#pragma once

/// Prompt data as the user's flags describe it: files, keys, chat template, tokenizer.

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "buffer/dataset.h"
#include "buffer/prompt_stream.h"
#include "config/eval_config.h"
#include "config/run_config.h"
#include "text/chat_template.h"
#include "text/conversation.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::setup {

/// The model's words: what text becomes before a model reads it, and after. `chat` is absent when
/// the model has no template.
struct ModelText {
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::optional<text::ChatTemplate> chat;
  std::chrono::local_days today;  // what templates that print the date are shown
  int64_t num_ids = 0;            // rows of the model's embedding; 0: not known
};

/// Names the first token that the embedding has no row for, as tokenizers may have more tokens than
/// models have rows; nothing: there is none.
std::optional<std::string> missing_row(const ModelText& text, std::span<const TokenId> ids);

/// Throws ConfigError when there is no tokenizer, or no template although one is needed.
ModelText load_model_text(const std::string& model_directory, bool needs_template,
                          std::chrono::local_days today);

/// At which tokens answers of the model end: those of its configuration, where there is one, and the
/// tokenizer's eos_token.
std::vector<TokenId> end_ids_of(const config::RunConfig& config, const ModelText& text);

/// Conversations with the template variables of the flags. `text` has a template and outlives the
/// object. Throws ConfigError for variables that no template takes.
text::ConversationRenderer make_renderer(const config::RunConfig& config, const ModelText& text,
                                         std::vector<TokenId> end_ids);

/// A sentence for each variable of --apply-chat-template-kwargs, where training renders
/// conversations, that no expression of the model's template looks up: it may be misspelt.
std::vector<std::string> unread_variables(const config::RunConfig& config, const ModelText& text);
/// The same of an evaluation data set.
std::vector<std::string> unread_variables(const config::EvalSetConfig& set, const ModelText& text);

/// Refuses --rollout-stop-token-ids, and those of evaluation data sets, that the model has no row
/// for: they would never come. Throws ConfigError.
void check_stop_tokens(std::string_view flag, std::span<const int64_t> ids, const ModelText& text);

/// How messages of training become tokens where they are not those of the text alone
/// (--no-special-tokens-in-content); empty otherwise. `text` outlives the function.
buffer::TokenizeMessagesFn tokenize_prompts(const config::RunConfig& config, const ModelText& text);

/// How messages of training become text. `text` has a template and outlives the function.
buffer::RenderFn render_prompts(const config::RunConfig& config, const ModelText& text);

/// The prompts of training. Throws ConfigError naming file and line of every bad row.
buffer::Dataset load_prompts(const config::RunConfig& config, const ModelText& text);

/// The same, read while the run trains (--streaming-data).
std::unique_ptr<buffer::PromptStream> stream_prompts(const config::RunConfig& config,
                                                     const ModelText& text);

/// The rows of one evaluation data set of supervised training.
buffer::Dataset load_eval_rows(const config::RunConfig& config, const ModelText& text,
                               const config::EvalSetConfig& set);

/// The prompts of one evaluation data set.
buffer::Dataset load_eval_prompts(const config::RunConfig& config, const ModelText& text,
                                  const config::EvalSetConfig& set);

}  // namespace slime::setup
