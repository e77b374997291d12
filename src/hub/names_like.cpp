#include "hub/names_like.h"

#include <algorithm>
#include <array>
#include <functional>

#include "core/lower_case.h"
#include "core/nearest_name.h"

namespace slime::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMost = 3;
constexpr std::size_t kShortest = 3;  // of a word of which names are guessed

constexpr auto kKnown = std::to_array<std::string_view>({
    "HuggingFaceTB/SmolLM2-135M-Instruct",
    "HuggingFaceTB/SmolLM2-360M-Instruct",
    "HuggingFaceTB/SmolLM2-1.7B-Instruct",
    "Qwen/Qwen2.5-0.5B-Instruct",
    "Qwen/Qwen2.5-1.5B-Instruct",
    "Qwen/Qwen3-0.6B",
    "Qwen/Qwen3-1.7B",
    "Qwen/Qwen3-4B",
    "Qwen/Qwen3-8B",
    "google/gemma-3-270m-it",
    "google/gemma-3-1b-it",
    "meta-llama/Llama-3.2-1B-Instruct",
    "meta-llama/Llama-3.2-3B-Instruct",
});

/// "smollm2" of "models/SmolLM2/", "qwen3-0.6b" of "Qwen/Qwen3-0.6B@main".
std::string last_part(std::string_view name) {
  while (name.ends_with('/')) name.remove_suffix(1);
  name.remove_prefix(name.rfind('/') + 1);  // npos + 1 is 0
  return lower_case(std::string(name.substr(0, name.find('@'))));
}

bool is_near(const std::string& word, const std::string& name) {
  const std::array<std::string_view, 2> whole_and_begin{
      name, std::string_view(name).substr(0, word.size())};
  return nearest_name(word, whole_and_begin).has_value();
}

/// Model directories and runs in the folder in which the word would be.
std::vector<std::string> models_beside(const fs::path& path) {
  std::vector<std::string> names;
  const fs::path folder = path.parent_path();
  std::error_code none;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(folder.empty() ? fs::path(".") : folder, none)) {
    if (fs::exists(entry.path() / "config.json", none) ||
        fs::exists(entry.path() / "run.json", none))
      names.push_back((folder / entry.path().filename()).string());
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace

std::span<const std::string_view> known_models() { return kKnown; }

std::vector<std::string> cached_models(const fs::path& cache) {
  constexpr std::string_view kBegin = "models--";
  std::vector<std::string> names;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(cache, none)) {
    std::string name = entry.path().filename().string();
    if (!name.starts_with(kBegin)) continue;
    name.erase(0, kBegin.size());
    const std::size_t owner = name.find("--");
    if (owner != std::string::npos) names.push_back(name.replace(owner, 2, "/"));
  }
  std::ranges::sort(names);
  return names;
}

std::vector<std::string> names_like(std::string_view word, const std::vector<std::string>& names) {
  const std::string wanted = last_part(word);
  std::vector<std::string> found;
  const std::string whole(word.substr(0, word.find('@')));
  if (wanted.size() < kShortest || std::ranges::find(names, whole) != names.end()) return found;
  using IsLike = std::function<bool(const std::string&)>;
  const std::array<IsLike, 3> ways{
      [&](const std::string& name) { return name.starts_with(wanted); },
      [&](const std::string& name) { return name.find(wanted) != std::string::npos; },
      [&](const std::string& name) { return is_near(wanted, name); }};
  for (const IsLike& is_like : ways) {
    for (const std::string& name : names) {
      if (found.size() == kMost || !is_like(last_part(name))) continue;
      if (std::ranges::find(found, name) == found.end()) found.push_back(name);
    }
    if (!found.empty()) break;
  }
  return found;
}

std::string model_guess(std::string_view word, const fs::path& cache) {
  std::vector<std::string> names = models_beside(fs::path(word));
  // "/models/Qwen" is a path, not a name that was mistyped.
  const bool may_be_name = word.find_first_of("/~.") != 0;
  if (may_be_name) {
    for (std::string& name : cached_models(cache)) names.push_back(std::move(name));
    names.insert(names.end(), kKnown.begin(), kKnown.end());
  }
  const std::vector<std::string> found = names_like(word, names);
  if (found.empty()) return "";
  std::string text = "; did you mean ";
  for (std::size_t i = 0; i < found.size(); ++i)
    text += (i == 0 ? "" : i + 1 == found.size() ? " or " : ", ") + found[i];
  return text + "?";
}

}  // namespace slime::hub
