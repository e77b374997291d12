#pragma once

/// Names that other systems give to what a flag of this program says, and what an unknown name is
/// about.

#include <optional>
#include <string>
#include <string_view>

namespace slime::config {

/// "--lr" for --learning-rate: what to write here, as the rest of "here it is ...". Names of TRL,
/// verl, OpenRLHF, Hugging Face's Trainer, Megatron and vLLM. Nothing for others.
std::optional<std::string_view> our_words_for(std::string_view flag);

/// Whether the name, or the flag that it is a misspelling of, speaks of the objective, the optimizer,
/// the data, adapters or precision: a run without such a flag trains something else than was meant.
bool speaks_of_training(std::string_view flag);

/// What an unknown flag may mean: "; here it is --lr", "; did you mean --gamma?", or nothing.
std::string hint_for_unknown(const std::string& flag);

/// Hint for a key=value word of verl's command lines: "; here it is --lr", or nothing.
std::string hint_for_word(const std::string& word);

}  // namespace slime::config
