#include "engine/http/token_route_response.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <span>

#include "core/base64.h"

namespace slime::engine {
namespace {

/// {"token":"token_id:19","logprob":-0.0121
void append_entry(std::string& out, TokenId id, float log_prob) {
  fmt::format_to(std::back_inserter(out), "{{\"token\":\"token_id:{}\",\"logprob\":", id);
  append_log_prob(out, log_prob);
}

void append_ids(std::string& out, std::string_view name, std::span<const TokenId> ids) {
  out += ",\"";
  out += name;
  out += "\":[";
  for (const TokenId id : ids) fmt::format_to(std::back_inserter(out), "{},", id);
  ids.empty() ? static_cast<void>(out += ']') : static_cast<void>(out.back() = ']');
}

/// Expert ids as bytes of the narrowest type that holds them all, and its name in NumPy.
std::pair<std::string, const char*> expert_bytes(std::span<const std::int16_t> experts) {
  const bool is_narrow =
      std::all_of(experts.begin(), experts.end(), [](std::int16_t id) { return id < 256; });
  std::string bytes;
  bytes.reserve(experts.size() * (is_narrow ? 1 : 2));
  for (const std::int16_t id : experts) {
    bytes += static_cast<char>(id & 0xFF);
    if (!is_narrow) bytes += static_cast<char>(id >> 8);
  }
  return {std::move(bytes), is_narrow ? "uint8" : "uint16"};
}

const char* finish_word(const FinishReason& finish) {
  switch (finish.kind) {
    case FinishReason::Kind::kStop:
      return "stop";
    case FinishReason::Kind::kLength:
      return "length";
    case FinishReason::Kind::kAbort:
      break;
  }
  return "abort";
}

}  // namespace

TokenRouteChoice::TokenRouteChoice(const TokenRouteCall& call, std::size_t index,
                                   const ServedModel& model)
    : form_(call),
      index_(index),
      model_(model),
      stop_token_ids_(call.requests[index].sampling.stop_token_ids),
      routed_start_(call.requests[index].routed_experts_start_len) {
  const GenerateRequest& request = call.requests[index];
  if (call.returns_text) text_.emplace(request.sampling, *model.tokenizer);
  if (call.num_prompt_logprobs >= 0) prompt_ids_ = request.input_ids;
}

void TokenRouteChoice::add(const GenerateUpdate& update) {
  if (text_) text_->add(update.output_ids, update.finish);
  tokens_.add(update);
  const auto append = [](auto& all, const auto& more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  append(kept_ids_, update.top_p_ids);
  append(kept_counts_, update.top_p_counts);
  append(routed_experts_, update.routed_experts);
  totals_.add(update);
}

bool TokenRouteChoice::has_news() const {
  return tokens_.ids.size() > num_told_ || (totals_.finish && !has_told_end_) ||
         (text_ && text_->visible().size() > num_text_told_);
}

void TokenRouteChoice::append_logprobs(std::string& out, std::size_t first) const {
  out += ",\"logprobs\":";
  if (form_.num_logprobs < 0) {
    out += "null";
    return;
  }
  if (form_.returns_text) {
    out += json_text(
        chat_logprobs(tokens_, first, {.num_top = form_.num_logprobs}, *model_.tokenizer));
    return;
  }
  out += "{\"content\":[";
  const auto limit = static_cast<std::size_t>(form_.num_logprobs);
  for (std::size_t i = first; i < std::min(tokens_.ids.size(), tokens_.log_probs.size()); ++i) {
    append_entry(out, tokens_.ids[i], tokens_.log_probs[i]);
    if (limit > 1 && i < tokens_.top.size()) {  // the sampled one, then the best of the others
      out += ",\"top_logprobs\":[";
      append_entry(out, tokens_.ids[i], tokens_.log_probs[i]);
      std::size_t num_told = 1;
      for (const auto& [log_prob, id] : tokens_.top[i]) {
        if (id == tokens_.ids[i] || num_told == limit) continue;
        out += "},";
        append_entry(out, id, log_prob);
        ++num_told;
      }
      out += "}]";
    }
    out += "},";
  }
  if (out.back() == ',') out.pop_back();
  out += "]}";
}

json::value TokenRouteChoice::stop_reason() const {
  if (!totals_.finish) return nullptr;
  if (const auto* text = std::get_if<std::string>(&totals_.finish->matched))
    return json::value(*text);
  const auto* id = std::get_if<TokenId>(&totals_.finish->matched);
  const bool was_named = id != nullptr && std::find(stop_token_ids_.begin(), stop_token_ids_.end(),
                                                    *id) != stop_token_ids_.end();
  return was_named ? json::value(*id) : json::value(nullptr);
}

/// Row p of [rows, layers, experts per token] is that of token p of prompt and response, from
/// routed_experts_prompt_start on; the last token has none.
void TokenRouteChoice::append_routed_experts(std::string& out) const {
  const std::int64_t width = model_.routed_layers * model_.experts_per_token;
  if (!model_.returns_routed_experts || width == 0) return;
  const auto [bytes, type] = expert_bytes(routed_experts_);
  fmt::format_to(std::back_inserter(out),
                 ",\"routed_experts\":{{\"data\":\"{}\",\"shape\":[{},{},{}],\"dtype\":\"{}\","
                 "\"start\":{}}}",
                 to_base64(bytes), static_cast<std::int64_t>(routed_experts_.size()) / width,
                 model_.routed_layers, model_.experts_per_token, type, routed_start_);
}

void TokenRouteChoice::append_end(
    std::string& out, const std::function<std::string(WeightVersion)>& name_version) const {
  append_routed_experts(out);
  if (!kept_counts_.empty()) {
    out += ",\"sampling_mask\":[";
    std::span<const TokenId> rest = kept_ids_;
    for (const std::int64_t count : kept_counts_) {
      out += '[';
      for (const TokenId id : rest.first(static_cast<std::size_t>(count)))
        fmt::format_to(std::back_inserter(out), "{},", id);
      count == 0 ? static_cast<void>(out += ']') : static_cast<void>(out.back() = ']');
      out += ',';
      rest = rest.subspan(static_cast<std::size_t>(count));
    }
    out.back() = ']';
  }
  if (tokens_.num_constrained > 0) {
    fmt::format_to(std::back_inserter(out), ",\"num_constrained_tokens\":{}",
                   tokens_.num_constrained);
  }
  if (!tokens_.free_log_probs.empty()) {
    out += ",\"free_logprobs\":[";
    for (const float log_prob : tokens_.free_log_probs) {
      append_log_prob(out, log_prob);
      out += ',';
    }
    out.back() = ']';
  }
  out += ",\"weight_versions\":[";
  std::int64_t start = 0;
  for (const VersionRun& run : totals_.versions) {
    fmt::format_to(std::back_inserter(out),
                   "{}{{\"start\":{},\"end\":{},\"version\":", start == 0 ? "" : ",", start,
                   start + run.num_tokens);
    append_json_string(out, name_version(run.version));
    out += '}';
    start += run.num_tokens;
  }
  out += ']';
}

void TokenRouteChoice::append_to(std::string& out,
                                 const std::function<std::string(WeightVersion)>& name_version) {
  fmt::format_to(std::back_inserter(out), "{{\"index\":{},\"finish_reason\":", index_);
  out += totals_.finish ? fmt::format("\"{}\"", finish_word(*totals_.finish)) : "null";
  out += ",\"stop_reason\":" + json_text(stop_reason());
  append_ids(out, "token_ids", std::span(tokens_.ids).subspan(num_told_));
  if (text_) {
    out += ",\"text\":";
    append_json_string(out, text_->visible().substr(num_text_told_));
    num_text_told_ = text_->visible().size();
  }
  append_logprobs(out, num_told_);
  num_told_ = tokens_.ids.size();
  if (totals_.finish) append_end(out, name_version);
  has_told_end_ = totals_.finish.has_value();
  out += '}';
}

void TokenRouteChoice::append_prompt_logprobs(std::string& out) const {
  out += '[';
  for (std::size_t i = 0; i < std::min(prompt_ids_.size(), tokens_.input_log_probs.size()); ++i) {
    if (i > 0) out += ',';
    const std::optional<float>& log_prob = tokens_.input_log_probs[i];
    if (!log_prob) {
      out += "null";
      continue;
    }
    const TokenId told = prompt_ids_[i];
    std::int64_t rank = 0;
    const auto entry = [&](TokenId id, float value, std::int64_t at) {
      fmt::format_to(std::back_inserter(out), "\"{}\":{{\"logprob\":", id);
      append_log_prob(out, value);
      out += ",\"rank\":" + (at > 0 ? std::to_string(at) : std::string("null")) +
             ",\"decoded_token\":null}";
    };
    out += '{';
    bool has_told = false;
    if (i < tokens_.input_top.size()) {
      for (const auto& [value, id] : tokens_.input_top[i]) {
        if (++rank > form_.num_prompt_logprobs) break;
        if (rank > 1) out += ',';
        entry(id, value, rank);
        has_told |= id == told;
      }
    }
    if (!has_told) {
      if (out.back() == '}') out += ',';
      entry(told, *log_prob, 0);
    }
    out += '}';
  }
  out += ']';
}

json::object usage_of(const std::vector<TokenRouteChoice>& choices) {
  std::int64_t completion = 0, prompt = 0, cached = 0;
  for (const TokenRouteChoice& choice : choices) {
    completion += choice.totals().num_output;
    prompt = std::max(prompt, choice.totals().prompt_tokens);
    cached = std::max(cached, choice.totals().cached_tokens);
  }
  return {{"prompt_tokens", prompt},
          {"completion_tokens", completion},
          {"total_tokens", prompt + completion},
          {"prompt_tokens_details", {{"cached_tokens", cached}}}};
}

}  // namespace slime::engine
