#pragma once

/// "Did you mean" for models: names on this machine, and well-known ones, that a mistyped word may stand for.

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace slime::hub {

/// Names of docs/names.md, which are suggested though nobody has downloaded them.
std::span<const std::string_view> known_models();

/// Names of the models in a cache of Hugging Face's, in alphabetical order.
std::vector<std::string> cached_models(const std::filesystem::path& cache);

/// At most three of `names` that are like the word, compared by their last parts in small letters:
/// those that begin with it, or else contain it, or else differ in few letters. None where the word is one of them.
std::vector<std::string> names_like(std::string_view word, const std::vector<std::string>& names);

/// "; did you mean SmolLM2 or HuggingFaceTB/SmolLM2-135M-Instruct?": of the model directories and runs
/// beside the path that is not there, the models of the cache and the known ones. Empty: none is like it.
std::string model_guess(std::string_view word, const std::filesystem::path& cache);

}  // namespace slime::hub
