#include "setup/prompts.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "config/rules.h"
#include "config/unread_flags.h"
#include "config/users_functions.h"
#include "core/error.h"
#include "engine/end_tokens.h"
#include "model/config.h"
#include "model/foreign_checkpoint.h"
#include "reward/label.h"
#include "setup/scores.h"
#include "setup/supervised.h"

namespace slime::setup {
namespace {

/// What a data set's rows are rendered with.
struct Rendering {
  bool applies_template = false;
  json::object variables;
};

/// A data set's files with the functions that turn rows into prompts.
struct Source {
  buffer::DatasetConfig files;
  buffer::RenderFn render;
  buffer::TokenizeFn tokenize;
};

/// The ids, if the model has a row for each. Throws ConfigError.
std::vector<TokenId> checked(const ModelText& text, std::vector<TokenId> ids) {
  if (const auto problem = missing_row(text, ids)) throw ConfigError(*problem);
  return ids;
}

text::ConversationRenderer renderer_with(const config::RunConfig& config, const ModelText& text,
                                         const json::object& variables,
                                         std::vector<TokenId> end_ids) {
  auto options = text::to_chat_options(variables);
  if (!options) throw ConfigError("--apply-chat-template-kwargs: " + options.error().message);
  options->now = text.today;
  check(text.chat.has_value(), "conversations are rendered by a template");
  return {*text.chat,
          text::make_token_placer(*text.tokenizer),
          {.chat = std::move(*options),
           .end_ids = std::move(end_ids),
           .content_is_text = config.no_special_tokens_in_content}};
}

buffer::RenderFn renders_with(const config::RunConfig& config, const ModelText& text,
                              const json::object& variables) {
  return [renderer = renderer_with(config, text, variables, {})](const json::array& messages,
                                                                 const json::array& tools) {
    auto rendered = renderer.prompt_text(messages, tools.empty() ? json::value() : tools);
    if (!rendered) throw ConfigError(rendered.error().message);
    return std::move(*rendered);
  };
}

buffer::TokenizeMessagesFn tokenizes_with(const config::RunConfig& config, const ModelText& text,
                                          const json::object& variables) {
  if (!config.no_special_tokens_in_content) return nullptr;
  return [&text, renderer = renderer_with(config, text, variables, {})](const json::array& messages,
                                                                        const json::array& tools) {
    const auto prompt = renderer.prompt(messages, tools.empty() ? json::value() : tools);
    if (!prompt) throw ConfigError(prompt.error().message);
    return checked(text, prompt->ids());
  };
}

Source make_source(const config::RunConfig& config, const ModelText& text,
                   buffer::DatasetConfig files, const Rendering& rendering) {
  files.apply_chat_template = rendering.applies_template;
  files.keys.format = config.data_format;
  for (const std::string& word : config.rename_columns) {
    const std::size_t sign = word.find('=');
    files.keys.renamed.emplace_back(word.substr(0, sign), word.substr(sign + 1));
  }
  files.num_threads =
      static_cast<int>(config.num_data_workers > 0 ? config.num_data_workers : config.num_threads);
  buffer::RenderFn render;
  if (rendering.applies_template) {
    render = renders_with(config, text, rendering.variables);
    files.tokenize_messages = tokenizes_with(config, text, rendering.variables);
  }
  const auto tokenize = [&text](std::string_view prompt) {
    return checked(text, text.tokenizer->encode(prompt));
  };
  return {std::move(files), std::move(render),
          config.trains_on_rows() ? buffer::TokenizeFn() : tokenize};
}

/// Why the reward of a row by its own rule, or by that of an evaluation set, has no number under the
/// run's key. `set_name`: empty in training.
std::optional<std::string> key_problem(const config::RunConfig& config,
                                       const json::object& metadata, std::string_view run_type,
                                       std::string_view set_name) {
  const json::value* own = metadata.if_contains("rm_type");
  const std::string_view rule = own != nullptr && own->is_string() && !own->get_string().empty()
                                    ? std::string_view(own->get_string())
                                    : run_type;
  if (!config.generates() || config.has_users_post_process() || config.debug_rollout_only)
    return std::nullopt;
  const std::string& key = set_name.empty() ? config.reward_key : config.eval_reward_key;
  if (key.empty()) return std::nullopt;  // its samples fail, and say which fields there are
  return config::reward_key_problem(rule, key,
                                    set_name.empty() ? "--reward-key" : "--eval-reward-key");
}

/// Refuses rows that ask for a reward that does not exist, or whose label it cannot use; empty where
/// nothing is scored by rules. An evaluation data set may have a type of its own, which is checked
/// at once. `config` outlives the function. A stream is read while the run trains: there a label that cannot be used fails its
/// samples and does not end the run.
std::function<void(const buffer::DatasetRow&)> reward_check(
    const config::RunConfig& config, const config::EvalSetConfig* set = nullptr) {
  const reward::RewardConfig rewards = reward_config(config);
  const std::string set_name = set == nullptr ? "" : set->name;
  const std::string set_type = set == nullptr ? "" : set->rm_type;
  const json::object overrides = set == nullptr ? json::object() : set->metadata_overrides;
  const json::object of_all = config::eval_metadata(nullptr, set_type, overrides);
  if (of_all.contains("rm_type")) {
    if (const auto problem = reward::type_problem(of_all, "", rewards))
      throw ConfigError(fmt::format("evaluation data set {}: {}", set->name, *problem));
  }
  const bool reads_labels = !config.debug_train_only &&
                            (set != nullptr || !(config.streaming_data || lacks_labels(config)));
  const bool has_label_key = !(set == nullptr ? config.label_key : set->label_key).empty();
  const char* hint = has_label_key ? "" : " (--label-key names its field)";
  if (config.custom_rm_path.peek() == config::kMathVerifyReward && config.generates()) {
    return [=](const buffer::DatasetRow& row) {
      const auto answers = reward::right_answers(row.label, "math_verify");
      if (reads_labels && !answers) throw ConfigError(answers.error().message + hint);
    };
  }
  const bool is_scored = !config.rm_type.empty() || config.use_opd;
  if (!is_scored || config.has_users_reward() || config.trains_on_rows()) return nullptr;
  // Before it is said of each row.
  if (!config.rm_type.empty()) reward::make_reward(config.rm_type, rewards);
  return [=, &config, type = config.rm_type.get()](const buffer::DatasetRow& row) {
    const json::object metadata = config::eval_metadata(row.metadata, set_type, overrides);
    if (type.empty() && !metadata.contains("rm_type")) return;  // distillation alone
    if (const auto problem = reward::type_problem(metadata, type, rewards))
      throw ConfigError("metadata: " + *problem);
    if (const auto problem = key_problem(config, metadata, type, set_name))
      throw ConfigError(*problem);
    read_flags_of_rule(config, metadata);
    if (!reads_labels) return;
    if (const auto problem = reward::label_problem(row.label, metadata, type, rewards))
      throw ConfigError(*problem + hint);
  };
}

/// Also refuses messages that nobody makes a text of: the built-in generation draws from texts.
std::function<void(const buffer::DatasetRow&)> row_check(
    const config::RunConfig& config, const config::EvalSetConfig* set = nullptr) {
  const bool applies_template =
      set == nullptr ? config.apply_chat_template : set->apply_chat_template;
  const bool has_own_generation =
      !config.custom_generate_function_path.empty() || config::has_users_rollout(config) ||
      (set != nullptr &&
       (!set->custom_generate_function_path.empty() || config::has_users_evaluation(config)));
  auto check_reward = reward_check(config, set);
  if (applies_template || has_own_generation || config.trains_on_rows() ||
      !config.load_debug_rollout_data.empty())
    return check_reward;
  return [check_reward = std::move(check_reward)](const buffer::DatasetRow& row) {
    if (row.prompt.is_array())
      throw ConfigError("the prompt is a list of messages, add --apply-chat-template");
    if (check_reward) check_reward(row);
  };
}

/// Rows that are trained on have no reward; functions of the user's may look at their labels.
bool reads_labels(const config::RunConfig& config) {
  return !config.trains_on_rows() || config::has_users_code(config);
}

json::object flags_variables(const config::RunConfig& config) {
  return parse_json(config.apply_chat_template_kwargs, "--apply-chat-template-kwargs").as_object();
}

Source training_source(const config::RunConfig& config, const ModelText& text) {
  buffer::DatasetConfig files{.paths = config.prompt_data,
                              .keys = {.input = config.input_key,
                                       .label = reads_labels(config) ? config.label_key.get() : "",
                                       .takes_labels = reads_labels(config),
                                       .metadata = config.metadata_key,
                                       .tools = config.tool_key},
                              .max_prompt_tokens = config.rollout_max_prompt_len,
                              .check_row = row_check(config)};
  if (config.is_preference()) {
    files.keys.chosen = config.chosen_key;
    files.keys.rejected = config.rejected_key;
  }
  if (config.trains_on_rows()) {
    if (config.is_supervised()) files.keys.completion = config.completion_key;
    const auto rows = std::make_shared<const SupervisedRows>(config, text);
    const auto look = [rows](const buffer::DatasetRow& row) { return rows->left_out(row); };
    // A stream is filtered as it is read; what cannot be read ends it with file and line.
    if (config.streaming_data) {
      files.check_row = look;
    } else {
      files.leave_out = look;
    }
    files.max_prompt_tokens = std::nullopt;  // the rows' own look
  }
  // Rows that are trained on keep their messages: the loss mask renders them.
  const bool applies_template = config.apply_chat_template && !config.trains_on_rows();
  return make_source(
      config, text, std::move(files),
      {applies_template, applies_template ? flags_variables(config) : json::object()});
}

}  // namespace

std::optional<std::string> missing_row(const ModelText& text, std::span<const TokenId> ids) {
  if (text.num_ids == 0 || text.tokenizer->vocab_size() <= text.num_ids) return std::nullopt;
  const auto odd =
      std::ranges::find_if(ids, [&](TokenId id) { return int64_t{id} >= text.num_ids; });
  if (odd == ids.end()) return std::nullopt;
  return fmt::format("has the token {} ({}); the tokenizer has {} tokens, the model rows for {}",
                     json_text(text.tokenizer->token_bytes(*odd)), *odd,
                     text.tokenizer->vocab_size(), text.num_ids);
}

ModelText load_model_text(const std::string& model_directory, bool needs_template,
                          std::chrono::local_days today) {
  ModelText text{.tokenizer = {}, .chat = {}, .today = today};
  if (const std::string foreign = model::foreign_checkpoint(model_directory); !foreign.empty())
    throw ConfigError(fmt::format("--hf-checkpoint {}: is {}", model_directory, foreign));
  text.tokenizer = text::Tokenizer::load(model_directory);
  if (std::filesystem::exists(std::filesystem::path(model_directory) / "config.json"))
    text.num_ids = model::read_model_config(model_directory).vocab_size;
  if (needs_template) text.chat = text::ChatTemplate::load(model_directory);
  return text;
}

std::vector<TokenId> end_ids_of(const config::RunConfig& config, const ModelText& text) {
  model::ModelConfig model;
  if (std::filesystem::exists(std::filesystem::path(config.hf_checkpoint) / "config.json"))
    model = model::read_model_config(config.hf_checkpoint);
  else
    model.vocab_size = text.tokenizer->vocab_size();
  std::vector<TokenId> ids = engine::end_tokens(model, text.tokenizer.get()).ids;
  const auto& names = text.tokenizer->special_tokens();
  const auto eos = names.find("eos_token");
  if (eos == names.end()) return ids;
  // The tokenizer's own is the one that answers are given.
  const auto id = text.tokenizer->id_of(eos->second);
  const auto own = id ? std::ranges::find(ids, *id) : ids.end();
  if (own != ids.end()) std::rotate(ids.begin(), own, own + 1);
  return ids;
}

namespace {

std::vector<std::string> unread_of(const json::object& variables, std::string_view where,
                                   const ModelText& text) {
  if (!text.chat) return {};
  std::vector<std::string> notes;
  const auto options = text::to_chat_options(variables);
  if (!options) return {};  // refused where they are rendered
  for (const auto& member : options->variables) {
    const std::string_view name = member.key();
    if (text.chat->reads(name)) continue;
    const std::optional<std::string> nearest = text.chat->nearest_variable(name);
    notes.push_back(fmt::format(
        "{}: {} has no effect: the model's chat template looks up no such name{}", where,
        json_text(json::value(name)),
        nearest ? fmt::format("; did you mean {}?", json_text(json::value(*nearest))) : ""));
  }
  return notes;
}

}  // namespace

std::vector<std::string> unread_variables(const config::RunConfig& config, const ModelText& text) {
  if (!config.apply_chat_template && !config.trains_on_rows()) return {};
  return unread_of(flags_variables(config), "--apply-chat-template-kwargs", text);
}

std::vector<std::string> unread_variables(const config::EvalSetConfig& set, const ModelText& text) {
  if (!set.apply_chat_template) return {};
  return unread_of(set.apply_chat_template_kwargs,
                   fmt::format("evaluation data set {}: --apply-chat-template-kwargs", set.name),
                   text);
}

void check_stop_tokens(std::string_view flag, std::span<const int64_t> ids, const ModelText& text) {
  const int64_t num_ids = text.num_ids > 0 ? text.num_ids : text.tokenizer->vocab_size();
  std::vector<std::string> problems;
  for (const int64_t id : ids) {
    if (id < num_ids) continue;
    problems.push_back(fmt::format("{} {}: the model has {} tokens, 0 to {}; this one never comes",
                                   flag, id, num_ids, num_ids - 1));
  }
  if (!problems.empty()) throw ConfigError(problems);
}

text::ConversationRenderer make_renderer(const config::RunConfig& config, const ModelText& text,
                                         std::vector<TokenId> end_ids) {
  return renderer_with(config, text, flags_variables(config), std::move(end_ids));
}

buffer::TokenizeMessagesFn tokenize_prompts(const config::RunConfig& config,
                                            const ModelText& text) {
  return tokenizes_with(config, text, flags_variables(config));
}

buffer::RenderFn render_prompts(const config::RunConfig& config, const ModelText& text) {
  return renders_with(config, text, flags_variables(config));
}

buffer::Dataset load_prompts(const config::RunConfig& config, const ModelText& text) {
  Source source = training_source(config, text);
  return buffer::Dataset::load(source.files, std::move(source.render), std::move(source.tokenize));
}

std::unique_ptr<buffer::PromptStream> stream_prompts(const config::RunConfig& config,
                                                     const ModelText& text) {
  Source source = training_source(config, text);
  return std::make_unique<buffer::PromptStream>(std::move(source.files), std::move(source.render),
                                                std::move(source.tokenize));
}

buffer::Dataset load_eval_rows(const config::RunConfig& config, const ModelText& text,
                               const config::EvalSetConfig& set) {
  const SupervisedRows rows(config, text);
  Source source = make_source(
      config, text,
      {.paths = {set.path},
       .flag = "--eval-prompt-data",
       .keys = {.input = set.input_key,
                .metadata = set.metadata_key,
                .completion = config.completion_key,
                .tools = set.tool_key},
       .leave_out = [&rows](const buffer::DatasetRow& row) { return rows.left_out(row); }},
      {});
  return buffer::Dataset::load(source.files, nullptr, nullptr);
}

buffer::Dataset load_eval_prompts(const config::RunConfig& config, const ModelText& text,
                                  const config::EvalSetConfig& set) {
  Source source = make_source(config, text,
                              {.paths = {set.path},
                               .flag = "--eval-prompt-data",
                               .keys = {.input = set.input_key,
                                        .label = set.label_key,
                                        .metadata = set.metadata_key,
                                        .tools = set.tool_key},
                               .max_prompt_tokens = config.eval_max_prompt_len,
                               .check_row = row_check(config, &set)},
                              {set.apply_chat_template, set.apply_chat_template_kwargs});
  return buffer::Dataset::load(source.files, std::move(source.render), std::move(source.tokenize));
}

}  // namespace slime::setup
