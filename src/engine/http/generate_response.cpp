#include "engine/http/generate_response.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "core/version_runs.h"
#include "engine/http/abort_status.h"
#include "engine/request_parts.h"

namespace slime::engine {

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

void ResponseTotals::add(const GenerateUpdate& update) {
  num_output += static_cast<std::int64_t>(update.output_ids.size());
  num_constrained += update.num_constrained;
  drafts += update.drafts;
  for (const VersionRun& run : update.versions) append_run(versions, run);
  take_totals(*this, update);
}

namespace {

/// By the names of SGLang's present version and those that slime reads.
void append_drafts(std::string& out, const DraftCounts& drafts) {
  fmt::format_to(std::back_inserter(out),
                 ",\"spec_verify_ct\":{},\"spec_num_proposed_drafts\":{},"
                 "\"spec_num_correct_drafts\":{},\"spec_draft_token_num\":{},"
                 "\"spec_accept_token_num\":{},\"spec_accept_rate\":{},"
                 "\"spec_accept_length\":{}",
                 drafts.num_steps, drafts.num_drafted, drafts.num_kept, drafts.num_drafted,
                 drafts.num_kept, drafts.accept_rate(), drafts.accept_length());
  if (drafts.num_compared == 0) return;
  fmt::format_to(std::back_inserter(out),
                 ",\"verify_compared_token_num\":{},\"verify_redrawn_token_num\":{}",
                 drafts.num_compared, drafts.num_redrawn);
}

}  // namespace

GenerateResponse::GenerateResponse(const GenerateRequest& request, const text::Tokenizer* tokenizer,
                                   ResponseForm form)
    : tokenizer_(tokenizer),
      form_(std::move(form)),
      wanted_{.logprob = request.return_logprob,
              .free_logprob = request.return_free_logprobs,
              .top = request.return_logprob && request.top_logprobs_num > 0,
              .asked = request.return_logprob && !request.token_ids_logprob.empty(),
              .logprob_start = request.logprob_start_len,
              .topk = request.top_logprobs_num,
              .top_p_ids = request.return_top_p_token_ids,
              .top_p_log_probs = request.return_top_p_log_probs,
              .routed_experts = request.return_routed_experts,
              .routed_experts_start = request.routed_experts_start_len},
      rid_(request.rid) {
  if (tokenizer != nullptr) text_.emplace(request.sampling, *tokenizer);
  if (form_.returns_prompt_token_ids || wanted_.logprob_start >= 0) prompt_ = request.input_ids;
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
    append_escaped(escaped_text_.text, visible.substr(num_escaped_));
    num_escaped_ = visible.size();
  }

  for (std::size_t i = 0; i < update.output_ids.size(); ++i) {
    fmt::format_to(std::back_inserter(arrays_.output_ids.text), "{},", update.output_ids[i]);
    if (wanted_.logprob && i < update.output_log_probs.size()) {
      append_triple(arrays_.output_log_probs.text, update.output_log_probs[i],
                    update.output_ids[i]);
      arrays_.output_log_probs.text += ',';
    }
    if (i < update.output_free_log_probs.size()) {
      append_triple(arrays_.free_log_probs.text, update.output_free_log_probs[i],
                    update.output_ids[i]);
      arrays_.free_log_probs.text += ',';
    }
  }
  if (wanted_.top) {
    for (const auto& best : update.output_top) {
      append_top(arrays_.output_top, best);
      for (const auto& [log_prob, id] : best) {
        topk_.ids.push_back(id);
        topk_.log_probs.push_back(log_prob);
      }
    }
  }
  if (wanted_.asked) {
    for (const auto& asked : update.output_asked) append_top(arrays_.output_asked, asked);
    for (const auto& asked : update.input_asked) append_top(arrays_.input_asked, asked);
  }
  for (const std::optional<float>& log_prob : update.input_log_probs) {
    const std::int64_t position = wanted_.logprob_start + num_input_scored_++;
    if (position < 0 || position >= static_cast<std::int64_t>(prompt_.size())) continue;
    append_triple(arrays_.input_log_probs.text, log_prob,
                  prompt_[static_cast<std::size_t>(position)]);
    arrays_.input_log_probs.text += ',';
  }
  if (wanted_.top) {
    for (const auto& best : update.input_top) append_top(arrays_.input_top, best);
  }
  top_p_.ids.insert(top_p_.ids.end(), update.top_p_ids.begin(), update.top_p_ids.end());
  top_p_.log_probs.insert(top_p_.log_probs.end(), update.top_p_log_probs.begin(),
                          update.top_p_log_probs.end());
  routed_experts_.insert(routed_experts_.end(), update.routed_experts.begin(),
                         update.routed_experts.end());
  for (const std::int64_t count : update.top_p_counts) {
    top_p_.offsets.push_back(top_p_.offsets.back() + static_cast<std::int32_t>(count));
  }
  totals_.add(update);
}

void GenerateResponse::append_meta(std::string& out) {
  const WeightVersion version =
      totals_.versions.empty() ? totals_.scored_by.value_or(-1) : totals_.versions.back().version;
  const auto name_of = [this](WeightVersion of) {
    return form_.name_version ? form_.name_version(of)
                              : std::to_string(std::max<WeightVersion>(of, 0));
  };
  out += "{\"id\":";
  append_json_string(out, rid_);
  out += ",\"finish_reason\":" + json_text(engine::to_json(totals_.finish, totals_.num_output));
  fmt::format_to(std::back_inserter(out),
                 ",\"prompt_tokens\":{},\"completion_tokens\":{},\"cached_tokens\":{},\"num_"
                 "retractions\":{},\"queue_time\":{}",
                 totals_.prompt_tokens, totals_.num_output, totals_.cached_tokens,
                 totals_.num_retractions, totals_.queue_seconds);
  out += ",\"weight_version\":";
  append_json_string(out, name_of(version));
  if (totals_.versions.size() > 1) {  // ours: which weights made which tokens
    out += ",\"weight_version_runs\":[";
    for (const VersionRun& run : totals_.versions) {
      out += '[';
      append_json_string(out, name_of(run.version));
      fmt::format_to(std::back_inserter(out), ",{}],", run.num_tokens);
    }
    out.back() = ']';
  }
  if (totals_.num_constrained > 0) {  // ours: they are not draws of the model's own distribution
    fmt::format_to(std::back_inserter(out), ",\"constrained\":true,\"num_constrained_tokens\":{}",
                   totals_.num_constrained);
  }
  if (totals_.drafts.num_steps > 0) append_drafts(out, totals_.drafts);
  if (wanted_.free_logprob)
    arrays_.free_log_probs.append_to(out, "output_token_free_logprobs", form_.is_incremental);
  if (wanted_.logprob) {
    arrays_.output_log_probs.append_to(out, "output_token_logprobs", form_.is_incremental);
    if (wanted_.logprob_start >= 0)
      arrays_.input_log_probs.append_to(out, "input_token_logprobs", form_.is_incremental);
    if (wanted_.top) arrays_.output_top.append_to(out, "output_top_logprobs", form_.is_incremental);
    if (wanted_.top && wanted_.logprob_start >= 0)
      arrays_.input_top.append_to(out, "input_top_logprobs", form_.is_incremental);
    if (wanted_.asked)
      arrays_.output_asked.append_to(out, "output_token_ids_logprobs", form_.is_incremental);
    if (wanted_.asked && wanted_.logprob_start >= 0)
      arrays_.input_asked.append_to(out, "input_token_ids_logprobs", form_.is_incremental);
  }
  if (totals_.finish) {
    fmt::format_to(std::back_inserter(out), ",\"e2e_latency\":{}", totals_.total_seconds);
    const double decode_seconds = totals_.total_seconds - totals_.queue_seconds;
    if (totals_.num_output > 0 && decode_seconds > 0) {
      fmt::format_to(std::back_inserter(out), ",\"decode_throughput\":{}",
                     static_cast<double>(totals_.num_output) / decode_seconds);
    }
    if (wanted_.top_p_ids) {
      out += ",\"top_p_token_ids\":\"" + base64_of(top_p_.ids) + "\",\"top_p_token_offsets\":\"" +
             base64_of(top_p_.offsets) + "\"";
    }
    if (wanted_.top_p_log_probs)
      out += ",\"top_p_log_probs\":\"" + base64_of(top_p_.log_probs) + "\"";
    // Not where some of the best were impossible, of which there are fewer.
    if (wanted_.top && std::ssize(topk_.ids) == totals_.num_output * wanted_.topk) {
      out += ",\"output_topk_token_ids\":\"" + base64_of(topk_.ids) +
             "\",\"output_topk_log_probs\":\"" + base64_of(topk_.log_probs) + "\"";
      fmt::format_to(std::back_inserter(out), ",\"output_topk_shape\":[{},{}]", totals_.num_output,
                     wanted_.topk);
    }
    if (wanted_.routed_experts) {
      out += ",\"routed_experts\":\"" + base64_of(routed_experts_) + "\"";
      if (wanted_.routed_experts_start > 0) {
        fmt::format_to(std::back_inserter(out), ",\"routed_experts_start_len\":{}",
                       wanted_.routed_experts_start);
      }
    }
  }
  out += '}';
}

std::string GenerateResponse::to_json(std::int64_t index) {
  std::string out;
  out.reserve(escaped_text_.text.size() + arrays_.output_ids.text.size() +
              arrays_.output_log_probs.text.size() + arrays_.output_top.text.size() +
              arrays_.output_asked.text.size() + arrays_.input_log_probs.text.size() +
              arrays_.input_top.text.size() + arrays_.input_asked.text.size() + 512);
  out += '{';
  if (text_) {
    out += "\"text\":\"";
    out += escaped_text_.take(form_.is_incremental);
    out += '"';
  }
  arrays_.output_ids.append_to(out, "output_ids", form_.is_incremental);
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
