#include "engine/http/training_fields.h"

#include "engine/http/openai_logprobs.h"

namespace slime::engine {

void ask_for_training_fields(const OpenAiForm& form, GenerateRequest& request) {
  request.return_logprob |= form.returns_token_ids || form.returns_meta_info;
}

json::object training_fields(const ChatChoice& choice, const OpenAiForm& form,
                             const std::vector<TokenId>& prompt_ids, const VersionNamer& namer) {
  const ChoiceFacts facts{choice.tokens(), choice.last_update(), choice.versions()};
  const std::string version = namer.name(facts.last_version(namer));
  json::object fields{{"weight_version", version}};
  if (form.returns_token_ids) {
    json::array log_probs;
    for (const float each : choice.tokens().log_probs) log_probs.push_back(log_prob_number(each));
    fields["token_ids"] = json::value_from(choice.tokens().ids);
    fields["token_logprobs"] = std::move(log_probs);
    if (!choice.tokens().free_log_probs.empty()) {
      json::array free;
      for (const float each : choice.tokens().free_log_probs) free.push_back(log_prob_number(each));
      fields["token_free_logprobs"] = std::move(free);
    }
    if (choice.tokens().num_constrained > 0)
      fields["num_constrained_tokens"] = choice.tokens().num_constrained;
  }
  if (form.returns_token_ids || form.returns_prompt_token_ids)
    fields["prompt_token_ids"] = json::value_from(prompt_ids);
  if (form.returns_token_ids || form.returns_weight_versions)
    fields["weight_versions"] = weight_versions(facts, namer);
  if (form.returns_meta_info) {
    OpenAiForm all = form;
    all.returns_logprobs = true;
    json::object meta = meta_info(facts, all, version);
    meta["tool_call_errors"] = choice.num_call_errors();
    fields["meta_info"] = std::move(meta);
  }
  return fields;
}

}  // namespace slime::engine
