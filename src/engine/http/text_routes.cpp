/// Routes between text and tokens: /tokenize, of a text or of messages, and /detokenize.

#include <utility>

#include "core/error.h"
#include "core/json.h"
#include "engine/chat/chat_prompt.h"
#include "engine/http/api_state.h"
#include "engine/http/request_fields_table.h"
#include "text/tokenizer/tokenizer.h"
#include "text/unicode/unicode.h"

namespace slime::engine {
namespace {

/// The bytes of each token; what is not UTF-8 is shown as U+FFFD.
json::array token_texts(const ServedModel& model, const std::vector<TokenId>& ids) {
  json::array texts;
  for (const TokenId id : ids)
    texts.emplace_back(text::to_valid_utf8(model.tokenizer->token_bytes(id)));
  return texts;
}

/// The prompt that the chat template makes, as chat completions would.
std::vector<TokenId> tokens_of_messages(const ServedModel& model, const FieldReader& fields,
                                        std::vector<std::string>& problems) {
  ChatRequest request;
  if (const json::array* messages = fields.required().array("messages"))
    request.messages = *messages;
  if (const json::array* tools = fields.array("tools")) request.tools = *tools;
  if (const json::object* options = fields.object("chat_template_kwargs"))
    request.template_options = *options;
  const auto flag = [&](const char* name, bool& target) {
    target = fields.boolean(name).value_or(target);
  };
  flag("add_generation_prompt", request.adds_generation_prompt);
  flag("continue_final_message", request.continues_final_message);
  flag("add_special_tokens", request.adds_special_tokens);
  refuse_unsupported(fields, kTokenize);
  if (!problems.empty()) throw ConfigError(problems);
  return prompt_tokens(std::move(request), model);
}

/// Of a text, of a list of texts, for which tokens and count are lists too, or of messages.
HttpResponse tokenize(ApiState& state, const HttpRequest& request) {
  const json::object body = parse_body(request.body);
  std::vector<std::string> problems;
  const FieldReader fields(body, "", problems);
  fields.refuse_unknown(known_fields(kTokenize));
  const bool tells_texts = fields.boolean("return_token_strs").value_or(false);
  const bool is_chat = fields.has("messages");
  if (is_chat && fields.has("prompt")) fields.note("prompt", "and messages are two prompts");
  const json::value* prompt = fields.find("prompt");
  const bool is_list = prompt != nullptr && prompt->is_array();
  std::vector<std::vector<TokenId>> all;
  require_tokenizer(state.model);
  if (is_chat) {
    all.push_back(tokens_of_messages(state.model, fields, problems));
  } else {
    const bool adds_special = fields.boolean("add_special_tokens").value_or(true);
    if (prompt == nullptr) fields.note("prompt", "is missing, and so are messages");
    std::vector<std::string> texts = fields.texts("prompt");
    require_none(problems);
    if (!is_list && texts.empty()) texts.emplace_back();
    for (const std::string& text : texts)
      all.push_back(encode_prompt(state.model, "prompt", text, adds_special));
  }
  json::array tokens, counts, strings;
  for (const std::vector<TokenId>& ids : all) {
    tokens.push_back(json::value_from(ids));
    counts.push_back(ids.size());
    if (tells_texts) strings.push_back(token_texts(state.model, ids));
  }
  const auto shape = [&](json::array& list) {
    return is_list ? json::value(std::move(list)) : std::move(list.front());
  };
  json::object answer{{"tokens", shape(tokens)},
                      {"count", shape(counts)},
                      {"max_model_len", state.model.context_length}};
  if (tells_texts) answer["token_strs"] = shape(strings);
  return json_response(answer);
}

HttpResponse detokenize(ApiState& state, const HttpRequest& request) {
  require_tokenizer(state.model);
  const json::object body = parse_body(request.body);
  std::vector<std::string> problems;
  const FieldReader fields(body, "", problems);
  const bool skips_special = fields.boolean("skip_special_tokens").value_or(true);
  const json::value* tokens = fields.find("tokens");
  const json::array* list = tokens == nullptr ? nullptr : tokens->if_array();
  const bool is_batch = list != nullptr && !list->empty() && list->front().is_array();
  std::vector<std::vector<TokenId>> all;
  if (is_batch) {
    for (const json::value& ids : *list)
      all.push_back(fields.token_ids(ids, "tokens", state.model.vocab_size));
  } else {
    all.push_back(fields.required().token_ids("tokens", state.model.vocab_size));
  }
  fields.refuse_unknown(known_fields(kDetokenize));
  require_none(problems);
  json::array texts;
  for (const std::vector<TokenId>& ids : all)
    texts.emplace_back(state.model.tokenizer->decode(ids, skips_special));
  const json::value text = is_batch ? json::value(texts) : texts.front();
  return json_response({{"text", text}, {"prompt", text}});  // SGLang's name, vLLM's
}

}  // namespace

void add_text_routes(ApiState& state, std::vector<net::HttpRoute>& routes) {
  const auto add = [&](const char* path, HttpResponse (*answer)(ApiState&, const HttpRequest&)) {
    routes.emplace_back(
        "POST", path, net::RouteClass::kInference,
        answer_on(state.parse_threads,
                  [&state, answer](const HttpRequest& request) { return answer(state, request); }));
  };
  for (const char* path : {"/tokenize", "/v1/tokenize"}) add(path, tokenize);
  for (const char* path : {"/detokenize", "/v1/detokenize"}) add(path, detokenize);
}

}  // namespace slime::engine
