#include "loop/prompts.h"

#include "core/error.h"

namespace slime::loop {
namespace {

buffer::Dataset load(const RunConfig& config, const ModelText& text, buffer::DatasetConfig files) {
  files.apply_chat_template = config.apply_chat_template;
  files.num_threads = static_cast<int>(config.num_threads);
  buffer::RenderFn render;
  if (config.apply_chat_template) {
    const json::value variables = parse_json(config.apply_chat_template_kwargs, "--apply-chat-template-kwargs");
    const auto options = text::to_chat_options(variables.as_object());
    if (!options) throw ConfigError("--apply-chat-template-kwargs: " + options.error().message);
    render = [&text, options = *options](const json::array& messages, const json::array& tools) {
      text::ChatOptions all = options;
      all.add_generation_prompt = true;
      all.now = text.today;
      if (!tools.empty()) all.tools = tools;
      const auto rendered = text.chat->render(messages, all);
      if (!rendered) throw ConfigError("chat template: " + rendered.error().message);
      return *rendered;
    };
  }
  const auto tokenize = [&text](std::string_view prompt) { return text.tokenizer->encode(prompt); };
  return buffer::Dataset::load(files, std::move(render), config.is_supervised() ? buffer::TokenizeFn() : tokenize);
}

const std::string& first_set(const std::string& preferred, const std::string& fallback) {
  return preferred.empty() ? fallback : preferred;
}

}  // namespace

ModelText load_model_text(const std::string& model_directory, bool needs_template, std::chrono::local_days today) {
  ModelText text{.tokenizer = {}, .chat = {}, .today = today};
  text.tokenizer = text::Tokenizer::load(model_directory);
  if (needs_template) text.chat = text::ChatTemplate::load(model_directory);
  return text;
}

buffer::Dataset load_prompts(const RunConfig& config, const ModelText& text) {
  return load(config, text,
              {.paths = config.prompt_data,
               .keys = {.input = config.input_key,
                        .label = config.label_key,
                        .metadata = config.metadata_key,
                        .tools = config.tool_key},
               .max_prompt_tokens = config.rollout_max_prompt_len});
}

buffer::Dataset load_eval_prompts(const RunConfig& config, const ModelText& text, const std::string& path) {
  return load(config, text,
              {.paths = {path},
               .keys = {.input = first_set(config.eval_input_key, config.input_key),
                        .label = first_set(config.eval_label_key, config.label_key),
                        .metadata = config.metadata_key,
                        .tools = first_set(config.eval_tool_key, config.tool_key)},
               .max_prompt_tokens = config.eval_max_prompt_len});
}

}  // namespace slime::loop
