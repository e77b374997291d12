#include "engine/http/completions_answer.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "engine/http/abort_status.h"
#include "engine/http/generate_request.h"
#include "engine/request_parts.h"

namespace slime::engine {

CompletionsChoice::CompletionsChoice(const CompletionsCall& call, std::size_t index,
                                     const text::Tokenizer& tokenizer)
    : form_(call.form),
      echoed_(call.echoed ? &(*call.echoed)[index / call.form.n] : nullptr),
      index_(index),
      tokenizer_(tokenizer),
      text_(call.requests[index].sampling, tokenizer),
      skips_special_tokens_(call.requests[index].sampling.skip_special_tokens),
      stop_token_ids_(call.requests[index].sampling.stop_token_ids),
      sent_{.log_probs = text_start()} {
  if (form_.returns_prompt_token_ids || form_.num_prompt_logprobs)
    prompt_ids_ = call.requests[index].input_ids;
}

void CompletionsChoice::add(const GenerateUpdate& update) {
  text_.add(update.output_ids, update.finish);
  tokens_.add(update);
  versions_.insert(versions_.end(), update.versions.begin(), update.versions.end());
  take_totals(last_, update);
}

json::value CompletionsChoice::finish_word() const {
  if (!last_.finish) return nullptr;
  switch (last_.finish->kind) {
    case FinishReason::Kind::kStop:
      return "stop";
    case FinishReason::Kind::kLength:
      return "length";
    case FinishReason::Kind::kAbort:
      return "abort";
  }
  return nullptr;
}

void CompletionsChoice::add_end(json::object& choice) const {
  choice["finish_reason"] = finish_word();
  choice["matched_stop"] = matched_stop(last_.finish);
  choice["stop_reason"] = stop_reason(last_.finish, stop_token_ids_);
}

TextPosition CompletionsChoice::text_start() const {
  return TextPosition(tokenizer_, skips_special_tokens_);
}

json::value CompletionsChoice::logprobs(TextPosition& position) const {
  json::value told;
  if (form_.returns_logprobs) {
    told = completion_logprobs(
        tokens_, echoed_, position,
        {.num_top = form_.num_top_logprobs, .writes_ids = form_.writes_tokens_as_ids}, tokenizer_);
  }
  position.num_ids = tokens_.ids.size();
  return told;
}

json::object CompletionsChoice::whole(const VersionNamer& namer) const {
  json::object choice{{"index", index_}};
  choice["text"] =
      (echoed_ != nullptr ? echoed_->text : std::string()) + std::string(text_.visible());
  TextPosition start = text_start();
  choice["logprobs"] = logprobs(start);
  add_end(choice);
  if (form_.returns_token_ids) choice["token_ids"] = json::value_from(tokens_.ids);
  if (form_.returns_prompt_token_ids) choice["prompt_token_ids"] = json::value_from(prompt_ids_);
  if (form_.num_prompt_logprobs) {
    choice["prompt_logprobs"] =
        prompt_logprobs(prompt_ids_, tokens_, *form_.num_prompt_logprobs, tokenizer_);
  }
  if (form_.returns_weight_versions) choice["weight_versions"] = weight_versions(facts(), namer);
  if (form_.returns_meta_info) {
    choice["meta_info"] = meta_info(facts(), form_, namer.name(facts().last_version(namer)));
  }
  return choice;
}

std::optional<json::object> CompletionsChoice::next_chunk() {
  const std::string_view visible = text_.visible();
  const std::size_t num_told = sent_.log_probs.num_ids;
  const bool tells_tokens = form_.returns_logprobs || form_.returns_token_ids;
  const bool has_tokens = tells_tokens && tokens_.ids.size() > num_told;
  const bool has_prompt = echoed_ != nullptr && !sent_.has_prompt;
  const bool ends = last_.finish && !sent_.has_ended;
  if (visible.size() <= sent_.num_text && !has_tokens && !has_prompt && !ends) return std::nullopt;
  std::string text(visible.substr(sent_.num_text));
  if (has_prompt) text = echoed_->text + text;
  sent_.has_prompt = true;
  json::object chunk{{"index", index_}, {"text", text}};
  if (form_.returns_token_ids) {
    chunk["token_ids"] = json::value_from(std::vector<TokenId>(
        tokens_.ids.begin() + static_cast<std::ptrdiff_t>(num_told), tokens_.ids.end()));
  }
  chunk["logprobs"] = logprobs(sent_.log_probs);
  add_end(chunk);
  sent_.num_text = visible.size();
  sent_.has_ended = last_.finish.has_value();
  return chunk;
}

namespace {

class CompletionsAnswer final : public OpenAiAnswer {
 public:
  CompletionsAnswer(const CompletionsCall& call, const text::Tokenizer& tokenizer,
                    VersionNamer namer)
      : form_(call.form),
        namer_(std::move(namer)),
        id_("cmpl-" + make_rid()),
        created_(std::time(nullptr)) {
    choices_.reserve(call.requests.size());
    for (std::size_t i = 0; i < call.requests.size(); ++i)
      choices_.emplace_back(call, i, tokenizer);
  }

  void add(std::size_t choice, const GenerateUpdate& update) override {
    choices_[choice].add(update);
  }

  const FinishReason* failure() const override {
    for (const CompletionsChoice& choice : choices_) {
      if (is_http_error(choice.finish())) return &*choice.finish();
    }
    return nullptr;
  }

  json::object whole() const override {
    json::object body = envelope();
    WeightVersion newest = 0;
    json::array choices;
    for (const CompletionsChoice& choice : choices_) {
      newest = std::max(newest, choice.facts().last_version(namer_));
      choices.push_back(choice.whole(namer_));
    }
    body["choices"] = std::move(choices);
    body["usage"] = usage().to_json();
    body["metadata"] = {{"weight_version", namer_.name(newest)}};
    return body;
  }

  std::vector<std::string> next_chunks() override {
    std::vector<std::string> chunks;
    for (CompletionsChoice& choice : choices_) {
      std::optional<json::object> part = choice.next_chunk();
      if (!part) continue;
      const bool has_usage = form_.includes_usage_always;
      chunks.push_back(chunk(json::array{*std::move(part)},
                             has_usage ? json::value(usage().to_json()) : json::value(nullptr)));
    }
    return chunks;
  }

  std::optional<std::string> usage_chunk() const override {
    if (!form_.includes_usage) return std::nullopt;
    return chunk({}, usage().to_json());
  }

 private:
  json::object envelope() const {
    return {
        {"id", id_}, {"object", "text_completion"}, {"created", created_}, {"model", form_.model}};
  }

  std::string chunk(json::array choices, json::value usage) const {
    json::object body = envelope();
    body["choices"] = std::move(choices);
    if (form_.includes_usage || form_.includes_usage_always) body["usage"] = std::move(usage);
    return json_text(body);
  }

  /// Each prompt counts once, however many choices it has.
  UsageTotals usage() const {
    UsageTotals totals;
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      totals.completion += static_cast<std::int64_t>(choices_[i].facts().tokens.ids.size());
      if (i % form_.n != 0) continue;
      totals.prompt += choices_[i].facts().last.prompt_tokens;
      totals.cached += choices_[i].facts().last.cached_tokens;
    }
    return totals;
  }

  const OpenAiForm& form_;
  const VersionNamer namer_;
  const std::string id_;
  const std::int64_t created_;
  std::vector<CompletionsChoice> choices_;
};

}  // namespace

std::unique_ptr<OpenAiAnswer> make_completions_answer(const CompletionsCall& call,
                                                      const text::Tokenizer& tokenizer,
                                                      VersionNamer namer) {
  return std::make_unique<CompletionsAnswer>(call, tokenizer, std::move(namer));
}

}  // namespace slime::engine
