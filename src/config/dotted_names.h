#pragma once

/// Dotted names of settings: verl's key=value words ("actor_rollout_ref.rollout.n=8") and OpenRLHF's flags
/// ("--actor.adam.lr").

#include <optional>
#include <string_view>

namespace slime::config {

/// Ours for a name with - for _, by its end: of "actor-rollout-ref.rollout.n" as of "rollout.n". For those whose
/// last part alone would lead elsewhere, or nowhere.
std::optional<std::string_view> our_words_for_dotted(std::string_view key);

/// Whether a word is one of verl's: "data.train_batch_size=128", also with + in front.
bool is_word_of_verl(std::string_view word);

}  // namespace slime::config
