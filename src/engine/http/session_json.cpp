#include "engine/http/session_json.h"

#include <array>
#include <chrono>
#include <utility>

#include "core/error.h"
#include "engine/chat/chat_model.h"
#include "engine/http/generate_request.h"
#include "engine/http/openai_logprobs.h"
#include "engine/http/request_body.h"
#include "engine/sampling_json.h"
#include "engine/sampling_params.h"
#include "engine/sessions/session_store.h"

namespace slime::engine {
namespace {

constexpr std::size_t kLongestParserName = 64;
constexpr auto kNewSessionFields = std::to_array<std::string_view>(
    {"name", "sampling_defaults", "max_context_tokens", "max_turns", "keep_thoughts",
     "chat_template_kwargs", "tool_call_parser", "reasoning_parser"});

/// What users' generate functions find in sampling_params where a run has --rollout-top-p below 1.
constexpr auto kCustomParams =
    std::to_array<std::string_view>({"return_top_p_token_ids", "return_top_p_log_probs"});

std::vector<std::string_view> known_sampling_defaults() {
  const auto names = sampling_names(SamplingNames::kSglang);
  std::vector<std::string_view> known(names.begin(), names.end());
  known.emplace_back("custom_params");
  return known;
}

void read_sampling_defaults(const FieldReader& fields, const ServedModel& model,
                            SessionOptions& options, std::vector<std::string>& problems) {
  options.sampling_defaults = model.sampling_defaults;
  const auto sampling = fields.fields("sampling_defaults");
  if (!sampling) return;
  std::vector<std::string_view> known = known_sampling_defaults();
  sampling->refuse_unknown(known);
  if (const auto custom = sampling->fields("custom_params")) {
    custom->refuse_unknown(kCustomParams);
    options.keeps_top_p_ids = custom->boolean("return_top_p_token_ids").value_or(false);
    options.keeps_top_p_log_probs = custom->boolean("return_top_p_log_probs").value_or(false);
  }
  SamplingParams& params = options.sampling_defaults;
  read_sampling_params(*sampling, SamplingNames::kSglang, model.vocab_size, params);
  if (sampling->has("max_new_tokens")) {
    options.max_new_tokens = params.max_new_tokens;
    sampling->expect(options.max_new_tokens > 0, "max_new_tokens", "must be at least 1");
  }
  for (const std::string& problem : problems_of(params, model.vocab_size))
    problems.push_back("sampling_defaults: " + problem);
  // How the text of an answer is written is the request's matter.
  params.no_stop_trim = false;
  params.skip_special_tokens = true;
}

std::string_view finish_text(const SessionTurn& turn) {
  switch (turn.finish.kind) {
    case FinishReason::Kind::kStop:
      return "stop";
    case FinishReason::Kind::kLength:
      return "length";
    case FinishReason::Kind::kAbort:
      return "abort";
  }
  return {};
}

json::array version_runs(const SessionTurn& turn, const VersionNamer& namer) {
  json::array runs;
  int64_t start = 0;
  for (std::size_t i = 0; i < turn.versions.size();) {
    const WeightVersion version = turn.versions[i].version;
    int64_t end = start;
    for (; i < turn.versions.size() && turn.versions[i].version == version; ++i)
      end += turn.versions[i].num_tokens;
    runs.push_back({{"start", start}, {"end", end}, {"version", namer.name(version)}});
    start = end;
  }
  return runs;
}

json::array log_prob_list(std::span<const float> log_probs) {
  json::array list;
  list.reserve(log_probs.size());
  for (const float each : log_probs) list.push_back(log_prob_number(each));
  return list;
}

json::object turn_json(const SessionTurn& turn, bool is_refused, const VersionNamer& namer) {
  json::object out = {
      {"id", turn.id},
      {"parent", turn.parent == nullptr ? json::value() : json::value(turn.parent->id)},
      {"num_prompt_tokens", turn.num_prompt_tokens()},
      {"context_ids", json::value_from(turn.context)},
      {"output_ids", json::value_from(turn.output)},
      {"output_log_probs", log_prob_list(turn.log_probs)},
      {"num_constrained", turn.num_constrained},
      {"weight_versions", version_runs(turn, namer)},
      {"finish_reason", finish_text(turn)},
      {"is_cut_off", turn.is_cut_off || is_refused},
      {"is_ill_formed", turn.is_ill_formed},
      {"message", turn.message}};
  if (turn.top_p_counts.empty()) return out;
  out["output_top_p_token_ids"] = json::value_from(turn.top_p_ids);
  out["output_top_p_token_counts"] = json::value_from(turn.top_p_counts);
  if (!turn.top_p_log_probs.empty())
    out["output_top_p_log_probs"] = log_prob_list(turn.top_p_log_probs);
  return out;
}

}  // namespace

NewSession read_new_session(const json::object& body, const ServedModel& model) {
  std::vector<std::string> problems;
  const FieldReader fields(body, "", problems);
  NewSession session;
  session.name = fields.text("name", 1024).value_or(make_rid());
  SessionOptions& options = session.options;
  read_sampling_defaults(fields, model, options, problems);
  options.max_context_tokens =
      fields.integer("max_context_tokens", 0, RequestLimits::kMaxTokens).value_or(0);
  options.max_turns = fields.integer("max_turns", 0, RequestLimits::kMaxTokens).value_or(0);
  options.keeps_thoughts = fields.boolean("keep_thoughts").value_or(true);
  if (const json::object* given = fields.object("chat_template_kwargs"))
    options.template_options = *given;
  const auto calls = fields.text("tool_call_parser", kLongestParserName);
  const auto reasoning = fields.text("reasoning_parser", kLongestParserName);
  fields.refuse_unknown(kNewSessionFields);
  require_none(problems);
  if (model.chat != nullptr && (calls || reasoning)) {
    const ChatParsers& own = model.chat->parsers();
    options.chat = model.chat->with_parsers({.tool_calls = calls.value_or(own.tool_calls),
                                             .reasoning = reasoning.value_or(own.reasoning)},
                                            model.tokenizer);
  }
  check_session_name(session.name);
  return session;
}

json::object session_summary(const Session& session) {
  const auto idle = std::chrono::steady_clock::now() - session.last_used();
  const SessionOptions& options = session.options();
  return {{"name", session.name()},
          {"num_turns", session.num_turns()},
          {"num_running", session.num_running()},
          {"num_bytes", session.num_bytes()},
          {"num_forgotten_tokens", session.num_forgotten_tokens()},
          {"is_closed", session.is_closed()},
          {"idle_seconds", std::chrono::duration<double>(idle).count()},
          {"max_context_tokens", session.model().context_length},
          {"max_turns", options.max_turns}};
}

json::object session_with_turns(const Session& session, const VersionNamer& namer) {
  json::object out = session_summary(session);
  json::array turns;
  session.read_turns([&](const SessionTurn& turn, bool is_refused) {
    turns.push_back(turn_json(turn, is_refused, namer));
  });
  out["turns"] = std::move(turns);
  return out;
}

}  // namespace slime::engine
