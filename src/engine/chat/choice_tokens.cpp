#include "engine/chat/choice_tokens.h"

namespace slime::engine {

void ChoiceTokens::add(const GenerateUpdate& update) {
  const auto append = [](auto& all, const auto& more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  append(input_log_probs, update.input_log_probs);
  append(input_top, update.input_top);
  append(ids, update.output_ids);
  append(log_probs, update.output_log_probs);
  append(free_log_probs, update.output_free_log_probs);
  num_constrained += update.num_constrained;
  append(top, update.output_top);
  append(top_p_ids, update.top_p_ids);
  append(top_p_counts, update.top_p_counts);
  append(top_p_log_probs, update.top_p_log_probs);
}

}  // namespace slime::engine
