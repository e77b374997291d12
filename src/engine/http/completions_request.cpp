#include "engine/http/completions_request.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "core/error.h"
#include "engine/chat/prompt_requests.h"
#include "engine/http/generate_request.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::engine {
namespace {

using Limits = RequestLimits;

constexpr std::int64_t kDefaultMaxTokens = 16;  // OpenAI's

EchoedPrompt prompt_of_ids(const ServedModel& model, std::vector<TokenId> ids) {
  std::string text = model.tokenizer->decode(ids, false);
  return {std::move(text), std::move(ids)};
}

std::vector<EchoedPrompt> read_prompts(const FieldReader& fields, const ServedModel& model) {
  const bool adds_special = fields.boolean("add_special_tokens").value_or(true);
  const json::value* given = fields.find("prompt");
  std::vector<EchoedPrompt> prompts;
  const auto complain = [&] {
    fields.note(
        "prompt",
        fmt::format("must be a string, a list of token ids, or a list of up to {} of either",
                    Limits::kMaxBatch));
  };
  const auto add = [&](const json::value& one) {
    if (one.is_string()) {
      prompts.push_back({std::string(one.get_string()),
                         encode_prompt(model, "prompt", one.get_string(), adds_special)});
    } else {
      prompts.push_back(prompt_of_ids(model, fields.token_ids(one, "prompt", model.vocab_size)));
    }
  };
  const json::array* list = given != nullptr ? given->if_array() : nullptr;
  if (given == nullptr || (list == nullptr && !given->is_string()) ||
      (list != nullptr && list->empty())) {
    complain();
  } else if (list == nullptr || (*list)[0].is_number()) {
    add(*given);
  } else if (list->size() > static_cast<std::size_t>(Limits::kMaxBatch)) {
    complain();
  } else {
    for (const json::value& one : *list) add(one);
  }
  if (const auto most = fields.integer("truncate_prompt_tokens", 1, Limits::kMaxTokens)) {
    for (EchoedPrompt& prompt : prompts) {
      if (prompt.ids.size() <= static_cast<std::size_t>(*most)) continue;
      prompt = prompt_of_ids(model, {prompt.ids.end() - *most, prompt.ids.end()});
    }
  }
  return prompts;
}

}  // namespace

CompletionsCall parse_completions(const json::object& body, const ServedModel& model) {
  require_tokenizer(model);  // this route answers with text
  std::vector<std::string> problems;
  const FieldReader fields(body, "", problems);
  CompletionsCall call;
  OpenAiForm& form = call.form;
  GenerateRequest shared;
  read_openai_fields(fields, model, form, shared);
  const bool echoes = fields.boolean("echo").value_or(false);
  const auto num_logprobs = fields.integer("logprobs", 0, Limits::kMaxTopLogprobs);
  form.returns_logprobs = num_logprobs.has_value();
  form.num_top_logprobs = num_logprobs.value_or(0);
  ask_for_logprobs(form, shared);
  if (echoes && form.returns_logprobs) shared.logprob_start_len = 0;
  refuse_unsupported(fields, kCompletions, kOpenAi);
  if (const auto best_of = fields.integer("best_of", 1, Limits::kMaxN)) {
    if (static_cast<std::size_t>(*best_of) != form.n)
      fields.note("best_of", "is not supported beyond n");
  }
  const auto max_tokens =
      fields.integer("max_tokens", 0, Limits::kMaxTokens).value_or(kDefaultMaxTokens);
  std::vector<EchoedPrompt> prompts = read_prompts(fields, model);
  call.ignored_fields = ignored_fields(fields, kCompletions);
  if (!problems.empty()) throw ConfigError(problems);
  std::vector<std::vector<TokenId>> ids;
  for (const EchoedPrompt& prompt : prompts) ids.push_back(prompt.ids);
  call.requests = make_requests(model, shared, ids, form.n, max_tokens);
  if (echoes) call.echoed = std::move(prompts);
  return call;
}

}  // namespace slime::engine
