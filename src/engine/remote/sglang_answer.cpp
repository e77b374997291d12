#include "engine/remote/sglang_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/field_reader.h"
#include "engine/sampling_json.h"

namespace slime::engine {
namespace {

constexpr TokenId kMostTokenId = std::numeric_limits<TokenId>::max();

struct TokenLogProb {
  std::optional<float> log_prob;
  TokenId id = 0;
};

/// [-0.5, 17, "text or null"].
TokenLogProb triple_of(const json::value& value) {
  const json::array* parts = value.if_array();
  if (parts == nullptr || parts->size() < 2)
    throw ConfigError("a log-prob is no [log-prob, token id, text]");
  TokenLogProb triple;
  const json::value& id = (*parts)[1];
  if (!id.is_int64() || id.get_int64() < 0 || id.get_int64() > kMostTokenId)
    throw ConfigError("a log-prob has no token id");
  triple.id = static_cast<TokenId>(id.get_int64());
  if ((*parts)[0].is_null()) return triple;
  if (!(*parts)[0].is_number()) throw ConfigError("a log-prob is no number");
  triple.log_prob = static_cast<float>((*parts)[0].to_number<double>());
  if (std::isnan(*triple.log_prob)) throw ConfigError("a log-prob is no number");
  return triple;
}

std::vector<std::pair<float, TokenId>> best_of(const json::value& value) {
  std::vector<std::pair<float, TokenId>> best;
  if (value.is_null()) return best;
  const json::array* list = value.if_array();
  if (list == nullptr) throw ConfigError("the best tokens of a position are no list");
  for (const json::value& each : *list) {
    const TokenLogProb triple = triple_of(each);
    best.emplace_back(triple.log_prob.value_or(-std::numeric_limits<float>::infinity()), triple.id);
  }
  return best;
}

FinishReason finish_of(const json::object& finish) {
  const FieldReader fields(finish, "finish_reason.");
  const std::string type = fields.required().text("type").value_or("");
  if (type == "length") return {.kind = FinishReason::Kind::kLength};
  if (type == "abort") {
    const int64_t status = fields.integer("status_code").value_or(0);
    const bool is_refused = status == 400 || status == 413 || status == 422;
    return aborted(is_refused ? FinishReason::Cause::kBadRequest : FinishReason::Cause::kRequested,
                   fields.text("message").value_or("aborted"));
  }
  if (type != "stop")
    throw ConfigError(
        fmt::format("finish_reason.type \"{}\" is none of stop, length, abort", type));
  FinishReason reason;
  const json::value* matched = fields.find("matched");
  if (matched == nullptr) return reason;
  if (matched->is_string()) reason.matched = std::string(matched->get_string());
  if (matched->is_int64() && matched->get_int64() >= 0 && matched->get_int64() <= kMostTokenId)
    reason.matched = static_cast<TokenId>(matched->get_int64());
  return reason;
}

const json::array& list_in(const FieldReader& meta, std::string_view name) {
  const json::array* list = meta.required().array(name);
  if (list == nullptr) throw ConfigError(fmt::format("meta_info.{} is missing", name));
  return *list;
}

/// Of all tokens so far, by SGLang's names and those that earlier versions had.
DraftCounts drafts_of(const FieldReader& meta) {
  const auto count = [&](std::string_view name, std::string_view older) {
    if (const auto number = meta.integer(name, 0)) return *number;
    return meta.integer(older, 0).value_or(0);
  };
  return {.num_drafted = count("spec_num_proposed_drafts", "spec_draft_token_num"),
          .num_kept = count("spec_num_correct_drafts", "spec_accept_token_num"),
          .num_steps = meta.integer("spec_verify_ct", 0).value_or(0)};
}

/// What `now` has more than `before`. Servers may tell their counts in the last frame alone, and then
/// there are none before it.
DraftCounts drafts_since(const DraftCounts& before, const DraftCounts& now) {
  const auto more = [&](int64_t DraftCounts::*count) {
    return std::max<int64_t>(now.*count - before.*count, 0);
  };
  const int64_t drafted = more(&DraftCounts::num_drafted);
  return {.num_drafted = drafted,
          .num_kept = std::min(more(&DraftCounts::num_kept), drafted),
          .num_steps = more(&DraftCounts::num_steps)};
}

void throw_error_of(const json::object& body) {
  const json::value* error = body.if_contains("error");
  if (error == nullptr || error->is_null()) return;
  const json::object* object = error->if_object();
  const json::value* message = object == nullptr ? error : object->if_contains("message");
  throw ConfigError(message != nullptr && message->is_string() ? std::string(message->get_string())
                                                               : json_text(*error));
}

}  // namespace

json::object sglang_request(const GenerateRequest& request, const std::string& rid) {
  const SamplingParams& sampling = request.sampling;
  json::object params = to_json(sampling);
  // Also at their defaults: a server may have others, of its model's generation_config.json.
  params["min_p"] = sampling.min_p;
  params["frequency_penalty"] = sampling.frequency_penalty;
  params["presence_penalty"] = sampling.presence_penalty;
  params["repetition_penalty"] = sampling.repetition_penalty;
  params["min_new_tokens"] = sampling.min_new_tokens;
  params["ignore_eos"] = sampling.ignore_eos;
  json::object body{{"rid", rid},
                    {"input_ids", json::value_from(request.input_ids)},
                    {"sampling_params", std::move(params)},
                    {"stream", true}};
  // Servers of ours go on with penalties, stop strings and random numbers behind them; others take them for
  // prompt.
  if (request.num_sampled > 0) body["num_sampled"] = request.num_sampled;
  if (request.return_logprob) {
    body["return_logprob"] = true;
    body["logprob_start_len"] = request.logprob_start_len;
    if (request.top_logprobs_num > 0) body["top_logprobs_num"] = request.top_logprobs_num;
  }
  return body;
}

std::string sglang_error_text(const std::string& body) {
  const auto parsed = try_parse_json(body);
  const json::object* object = parsed ? parsed->if_object() : nullptr;
  if (object == nullptr) return body.substr(0, 500);
  const json::value* error = object->if_contains("error");
  if (error != nullptr && error->is_object()) object = &error->get_object();
  for (const char* name : {"message", "error", "detail"}) {
    const json::value* text = object->if_contains(name);
    if (text != nullptr && text->is_string()) return std::string(text->get_string());
  }
  return body.substr(0, 500);
}

GenerateUpdate SglangAnswer::add(std::string_view frame) {
  const json::value parsed = parse_json(frame, "a frame");
  const json::object* body = parsed.if_object();
  if (body == nullptr) throw ConfigError("a frame is no object");
  throw_error_of(*body);
  const FieldReader fields(*body, "");
  const json::object* meta_object = fields.required().object("meta_info");
  if (meta_object == nullptr) throw ConfigError("a frame without meta_info");
  const FieldReader meta(*meta_object, "meta_info.");

  std::vector<TokenLogProb> told;
  if (wants_log_probs_) {
    for (const json::value& each : list_in(meta, "output_token_logprobs"))
      told.push_back(triple_of(each));
  } else {
    for (const TokenId id : fields.required().numbers<TokenId>("output_ids"))
      told.push_back({std::nullopt, id});
  }
  const auto num_told = static_cast<int64_t>(told.size());
  const int64_t total = meta.integer("completion_tokens", 0).value_or(num_told);
  // Of all tokens so far those are new that were not told; of new ones all are.
  int64_t num_known = 0;
  if (total == num_told && num_told >= num_tokens_) {
    num_known = num_tokens_;
  } else if (total != num_tokens_ + num_told) {
    throw ConfigError(fmt::format("a frame has {} tokens of {}, where {} were told before",
                                  num_told, total, num_tokens_));
  }

  GenerateUpdate update;
  for (int64_t i = num_known; i < num_told; ++i) {
    const TokenLogProb& token = told[static_cast<std::size_t>(i)];
    update.output_ids.push_back(token.id);
    if (!wants_log_probs_) continue;
    if (!token.log_prob) throw ConfigError("a sampled token has no log-prob");
    update.output_log_probs.push_back(*token.log_prob);
  }
  if (wants_top_) {
    const json::array& top = list_in(meta, "output_top_logprobs");
    if (static_cast<int64_t>(top.size()) != num_told)
      throw ConfigError("meta_info.output_top_logprobs is not as long as the tokens");
    for (int64_t i = num_known; i < num_told; ++i)
      update.output_top.push_back(best_of(top[static_cast<std::size_t>(i)]));
  }
  if (wants_input_ && !has_input_) {
    for (const json::value& each : list_in(meta, "input_token_logprobs"))
      update.input_log_probs.push_back(triple_of(each).log_prob);
    if (wants_top_) {
      for (const json::value& each : list_in(meta, "input_top_logprobs"))
        update.input_top.push_back(best_of(each));
    }
    has_input_ = true;
  }
  num_tokens_ += num_told - num_known;
  weight_version_ = meta.text("weight_version").value_or("");
  update.prompt_tokens = meta.integer("prompt_tokens", 0).value_or(0);
  update.cached_tokens = meta.integer("cached_tokens", 0).value_or(0);
  update.drafts = drafts_since(drafts_, drafts_of(meta));
  drafts_ += update.drafts;
  if (const json::object* finish = meta.object("finish_reason")) update.finish = finish_of(*finish);
  return update;
}

std::optional<std::string> EventSplitter::next() {
  for (;;) {
    const std::size_t end = bytes_.find("\n\n", begin_);
    if (end == std::string::npos) {
      bytes_.erase(0, begin_);
      begin_ = 0;
      if (bytes_.size() > limit_bytes_)
        throw ConfigError(fmt::format("an event of more than {} bytes", limit_bytes_));
      return std::nullopt;
    }
    const std::string_view event = std::string_view(bytes_).substr(begin_, end - begin_);
    begin_ = end + 2;
    constexpr std::string_view kData = "data:";
    if (!event.starts_with(kData)) continue;  // a comment
    std::string_view data = event.substr(kData.size());
    if (data.starts_with(' ')) data.remove_prefix(1);
    return std::string(data);
  }
}

}  // namespace slime::engine
