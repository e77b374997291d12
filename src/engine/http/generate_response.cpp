#include "engine/http/generate_response.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/http/abort_status.h"

namespace slime::engine {
namespace {

/// Appends `text` as the inside of a JSON string.
void append_escaped(std::string& out, std::string_view text) {
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        } else {
          out += c;
        }
    }
  }
}

/// Base64 of the little-endian bytes of int32 numbers.
std::string base64_of(const std::vector<std::int32_t>& numbers) {
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<unsigned char> bytes;
  bytes.reserve(numbers.size() * 4 + 2);
  for (const std::int32_t number : numbers) {
    for (int shift = 0; shift < 32; shift += 8) {
      bytes.push_back(static_cast<unsigned char>(static_cast<std::uint32_t>(number) >> shift));
    }
  }
  const std::size_t size = bytes.size();
  const std::size_t padding = (3 - size % 3) % 3;
  bytes.resize(size + padding);
  std::string text;
  text.reserve(bytes.size() / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::uint32_t group =
        static_cast<std::uint32_t>(bytes[i] << 16 | bytes[i + 1] << 8 | bytes[i + 2]);
    for (int shift = 18; shift >= 0; shift -= 6) text += kDigits[group >> shift & 63];
  }
  std::fill_n(text.rbegin(), padding, '=');
  return text;
}

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  append_escaped(out, text);
  out += '"';
}

}  // namespace

void append_log_prob(std::string& out, float log_prob) {
  if (std::isnan(log_prob)) {
    out += "null";
    return;
  }
  if (std::isinf(log_prob)) log_prob = std::copysign(std::numeric_limits<float>::max(), log_prob);
  const std::size_t start = out.size();
  fmt::format_to(std::back_inserter(out), "{}", log_prob);
  if (out.find_first_of(".e", start) == std::string::npos) out += ".0";
}

json::value to_json(const std::optional<FinishReason>& finish, std::int64_t num_output) {
  if (!finish) return nullptr;
  switch (finish->kind) {
    case FinishReason::Kind::kStop: {
      json::value matched;
      if (const auto* id = std::get_if<TokenId>(&finish->matched)) matched = *id;
      if (const auto* text = std::get_if<std::string>(&finish->matched)) matched = *text;
      return {{"type", "stop"}, {"matched", std::move(matched)}};
    }
    case FinishReason::Kind::kLength:
      return {{"type", "length"}, {"length", num_output}};
    case FinishReason::Kind::kAbort:
      break;
  }
  return {{"type", "abort"},
          {"message", finish->message},
          {"status_code", http_status_of(finish->cause)},
          {"err_type", nullptr}};
}

GenerateResponse::GenerateResponse(const GenerateRequest& request, const text::Tokenizer* tokenizer,
                                   ResponseForm form)
    : tokenizer_(tokenizer),
      form_(std::move(form)),
      rid_(request.rid),
      returns_logprob_(request.return_logprob),
      returns_top_(request.return_logprob && request.top_logprobs_num > 0),
      logprob_start_(request.logprob_start_len),
      returns_top_p_ids_(request.return_top_p_token_ids) {
  if (tokenizer != nullptr) text_.emplace(request.sampling, *tokenizer);
  if (form_.returns_prompt_token_ids || logprob_start_ >= 0) prompt_ = request.input_ids;
}

void GenerateResponse::append_triple(std::string& out, std::optional<float> log_prob,
                                     TokenId id) const {
  out += '[';
  log_prob ? append_log_prob(out, *log_prob) : static_cast<void>(out += "null");
  fmt::format_to(std::back_inserter(out), ",{},", id);
  if (form_.returns_text_in_logprobs) {
    append_json_string(out, tokenizer_->decode(std::span(&id, 1), false));
  } else {
    out += "null";
  }
  out += ']';
}

void GenerateResponse::append_top(ArrayText& array,
                                  const std::vector<std::pair<float, TokenId>>& best) const {
  if (best.empty()) {
    array.text += "null,";
    return;
  }
  array.text += '[';
  for (const auto& [log_prob, id] : best) {
    append_triple(array.text, log_prob, id);
    array.text += ',';
  }
  array.text.back() = ']';
  array.text += ',';
}

void GenerateResponse::add(const GenerateUpdate& update) {
  if (text_) {
    text_->add(update.output_ids, update.finish);
    const std::string_view visible = text_->visible();
    append_escaped(escaped_text_, visible.substr(num_escaped_));
    num_escaped_ = visible.size();
  }

  for (std::size_t i = 0; i < update.output_ids.size(); ++i) {
    fmt::format_to(std::back_inserter(output_ids_.text), "{},", update.output_ids[i]);
    if (returns_logprob_ && i < update.output_log_probs.size()) {
      append_triple(output_log_probs_.text, update.output_log_probs[i], update.output_ids[i]);
      output_log_probs_.text += ',';
    }
  }
  num_output_ += static_cast<std::int64_t>(update.output_ids.size());
  if (returns_top_) {
    for (const auto& best : update.output_top) append_top(output_top_, best);
  }
  for (const std::optional<float>& log_prob : update.input_log_probs) {
    const std::int64_t position = logprob_start_ + num_input_scored_++;
    if (position < 0 || position >= static_cast<std::int64_t>(prompt_.size())) continue;
    append_triple(input_log_probs_.text, log_prob, prompt_[static_cast<std::size_t>(position)]);
    input_log_probs_.text += ',';
  }
  if (returns_top_) {
    for (const auto& best : update.input_top) append_top(input_top_, best);
  }
  top_p_ids_.insert(top_p_ids_.end(), update.top_p_ids.begin(), update.top_p_ids.end());
  for (const std::int64_t count : update.top_p_counts) {
    top_p_offsets_.push_back(top_p_offsets_.back() + static_cast<std::int32_t>(count));
  }
  for (const VersionRun& run : update.versions) {
    if (!versions_.empty() && versions_.back().version == run.version) {
      versions_.back().num_tokens += run.num_tokens;
    } else {
      versions_.push_back(run);
    }
  }
  finish_ = update.finish;
  prompt_tokens_ = update.prompt_tokens;
  cached_tokens_ = update.cached_tokens;
  num_retractions_ = update.num_retractions;
  queue_seconds_ = update.queue_seconds;
  total_seconds_ = update.total_seconds;
}

void GenerateResponse::append_array(std::string& out, std::string_view name,
                                    ArrayText& array) const {
  std::string_view elements = array.text;
  if (form_.is_incremental) {
    elements.remove_prefix(array.num_sent);
    array.num_sent = array.text.size();
  }
  if (!elements.empty()) elements.remove_suffix(1);
  out += out.back() == '{' ? "\"" : ",\"";
  out += name;
  out += "\":[";
  out += elements;
  out += ']';
}

void GenerateResponse::append_meta(std::string& out) {
  const WeightVersion version = versions_.empty() ? -1 : versions_.back().version;
  const std::string version_name = form_.name_version
                                       ? form_.name_version(version)
                                       : std::to_string(std::max<WeightVersion>(version, 0));
  out += "{\"id\":";
  append_json_string(out, rid_);
  out += ",\"finish_reason\":" + json::serialize(engine::to_json(finish_, num_output_));
  fmt::format_to(std::back_inserter(out),
                 ",\"prompt_tokens\":{},\"completion_tokens\":{},\"cached_tokens\":{},\"num_"
                 "retractions\":{},\"queue_time\":{}",
                 prompt_tokens_, num_output_, cached_tokens_, num_retractions_, queue_seconds_);
  out += ",\"weight_version\":";
  append_json_string(out, version_name);
  if (versions_.size() > 1) {  // ours: which weights made which tokens
    out += ",\"weight_version_runs\":[";
    for (const VersionRun& run : versions_) {
      fmt::format_to(std::back_inserter(out), "[{},{}],", run.version, run.num_tokens);
    }
    out.back() = ']';
  }
  if (returns_logprob_) {
    append_array(out, "output_token_logprobs", output_log_probs_);
    if (logprob_start_ >= 0) append_array(out, "input_token_logprobs", input_log_probs_);
    if (returns_top_) append_array(out, "output_top_logprobs", output_top_);
    if (returns_top_ && logprob_start_ >= 0) append_array(out, "input_top_logprobs", input_top_);
  }
  if (finish_) {
    fmt::format_to(std::back_inserter(out), ",\"e2e_latency\":{}", total_seconds_);
    const double decode_seconds = total_seconds_ - queue_seconds_;
    if (num_output_ > 0 && decode_seconds > 0) {
      fmt::format_to(std::back_inserter(out), ",\"decode_throughput\":{}",
                     static_cast<double>(num_output_) / decode_seconds);
    }
    if (returns_top_p_ids_) {
      out += ",\"top_p_token_ids\":\"" + base64_of(top_p_ids_) + "\",\"top_p_token_offsets\":\"" +
             base64_of(top_p_offsets_) + "\"";
    }
  }
  out += '}';
}

std::string GenerateResponse::to_json(std::int64_t index) {
  std::string out;
  out.reserve(escaped_text_.size() + output_ids_.text.size() + output_log_probs_.text.size() +
              output_top_.text.size() + input_log_probs_.text.size() + input_top_.text.size() +
              512);
  out += '{';
  if (text_) {
    out += "\"text\":\"";
    out += std::string_view(escaped_text_).substr(form_.is_incremental ? num_escaped_sent_ : 0);
    num_escaped_sent_ = escaped_text_.size();
    out += '"';
  }
  append_array(out, "output_ids", output_ids_);
  if (form_.returns_prompt_token_ids) {
    out += ",\"prompt_token_ids\":[";
    for (const TokenId id : prompt_) fmt::format_to(std::back_inserter(out), "{},", id);
    prompt_.empty() ? static_cast<void>(out += ']') : static_cast<void>(out.back() = ']');
  }
  out += ",\"meta_info\":";
  append_meta(out);
  if (index >= 0) fmt::format_to(std::back_inserter(out), ",\"index\":{}", index);
  out += '}';
  return out;
}

}  // namespace slime::engine
