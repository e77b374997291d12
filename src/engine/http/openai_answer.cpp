#include "engine/http/openai_answer.h"

#include <algorithm>
#include <utility>

#include "engine/http/generate_response.h"
#include "engine/http/openai_logprobs.h"

namespace slime::engine {

std::vector<ServerEvent> OpenAiAnswer::begin() { return unnamed_events(first_chunks()); }
std::vector<ServerEvent> OpenAiAnswer::next() { return unnamed_events(next_chunks()); }

std::vector<ServerEvent> OpenAiAnswer::end() {
  std::vector<ServerEvent> events;
  if (std::optional<std::string> usage = usage_chunk()) events.push_back({"", *std::move(usage)});
  events.push_back({"", "[DONE]"});
  return events;
}

std::vector<ServerEvent> OpenAiAnswer::fail(const ApiError& error) {
  return {{"", json_text(openai_error(error))}};
}

WeightVersion ChoiceFacts::last_version(const VersionNamer& namer) const {
  if (!versions.empty()) return versions.back().version;
  return last.scored_by ? *last.scored_by : namer.current();
}

json::value matched_stop(const std::optional<FinishReason>& finish) {
  if (!finish) return nullptr;
  if (const auto* id = std::get_if<TokenId>(&finish->matched)) return *id;
  if (const auto* text = std::get_if<std::string>(&finish->matched)) return json::value(*text);
  return nullptr;
}

json::value stop_reason(const std::optional<FinishReason>& finish,
                        std::span<const TokenId> stop_token_ids) {
  const auto* id = finish ? std::get_if<TokenId>(&finish->matched) : nullptr;
  if (id != nullptr && std::ranges::find(stop_token_ids, *id) == stop_token_ids.end())
    return nullptr;
  return matched_stop(finish);
}

json::object meta_info(const ChoiceFacts& choice, const OpenAiForm& form,
                       std::string version_name) {
  const ChoiceTokens& tokens = choice.tokens;
  const GenerateUpdate& last = choice.last;
  json::object meta{
      {"prompt_tokens", last.prompt_tokens}, {"completion_tokens", tokens.ids.size()},
      {"cached_tokens", last.cached_tokens}, {"num_retractions", last.num_retractions},
      {"queue_time", last.queue_seconds},    {"e2e_latency", last.total_seconds},
      {"weight_version", version_name}};
  meta["finish_reason"] = to_json(last.finish, static_cast<std::int64_t>(tokens.ids.size()));
  if (form.returns_logprobs) {
    json::array triples;
    for (std::size_t i = 0; i < std::min(tokens.ids.size(), tokens.log_probs.size()); ++i) {
      triples.push_back(json::array{log_prob_number(tokens.log_probs[i]), tokens.ids[i], nullptr});
    }
    meta["output_token_logprobs"] = std::move(triples);
  }
  if (tokens.num_constrained > 0) {
    meta["constrained"] = true;
    meta["num_constrained_tokens"] = tokens.num_constrained;
  }
  if (!tokens.free_log_probs.empty()) {
    json::array triples;
    for (std::size_t i = 0; i < std::min(tokens.ids.size(), tokens.free_log_probs.size()); ++i) {
      triples.push_back(
          json::array{log_prob_number(tokens.free_log_probs[i]), tokens.ids[i], nullptr});
    }
    meta["output_token_free_logprobs"] = std::move(triples);
  }
  return meta;
}

json::array weight_versions(const ChoiceFacts& choice, const VersionNamer& namer) {
  json::array runs;
  std::int64_t start = 0;
  for (std::size_t i = 0; i < choice.versions.size();) {
    const WeightVersion version = choice.versions[i].version;
    std::int64_t end = start;
    for (; i < choice.versions.size() && choice.versions[i].version == version; ++i)
      end += choice.versions[i].num_tokens;
    runs.push_back({{"start", start}, {"end", end}, {"version", namer.name(version)}});
    start = end;
  }
  return runs;
}

json::object UsageTotals::to_json() const {
  return {{"prompt_tokens", prompt},
          {"completion_tokens", completion},
          {"total_tokens", prompt + completion},
          {"prompt_tokens_details", {{"cached_tokens", cached}}},
          {"completion_tokens_details", {{"reasoning_tokens", reasoning}}}};
}

}  // namespace slime::engine
