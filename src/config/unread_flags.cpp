#include "config/unread_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <type_traits>
#include <variant>

#include "config/flag_table.h"
#include "config/users_functions.h"

namespace slime::config {
namespace {

constexpr std::string_view kOfCritic = "critic: ";

template <typename Do>
void visit_flag(const FlagRow& row, const RunConfig& config, const Do& act) {
  std::visit(
      [&](auto member) {
        if constexpr (!std::is_same_v<decltype(member), std::monostate>) act(config.*member);
      },
      row.member);
}

/// Whether it holds of the row; of an alias, of any of the flags that it means, if it means any.
template <typename Holds>
bool any_meant(const FlagRow& row, const Holds& holds) {
  if (row.status != FlagStatus::kAlias) return holds(row);
  const std::vector<std::string_view> targets = row.alias.targets();
  return targets.empty() || std::ranges::any_of(targets, [&](std::string_view flag) {
           return any_meant(*find_flag(flag), holds);
         });
}

bool was_read(const FlagRow& row, const RunConfig& config) {
  return any_meant(row, [&](const FlagRow& meant) {
    bool is_read = false;
    visit_flag(meant, config, [&](const auto& flag) { is_read = flag.is_read(); });
    return is_read;
  });
}

bool has_effect(const FlagRow& row) {
  return row.status == FlagStatus::kWorks || row.status == FlagStatus::kAlias;
}

/// A test of flags looks at flags: at those of a copy that has records of its own.
RunConfig copy_with_own_records(const RunConfig& config) {
  RunConfig copy = config;
  for (const FlagRow& row : flag_table()) {
    std::visit(
        [&](auto member) {
          if constexpr (!std::is_same_v<decltype(member), std::monostate>)
            (copy.*member).separate();
        },
        row.member);
  }
  copy.num_engine_workers.separate();
  return copy;
}

bool mentions(std::string_view text, std::string_view flag) {
  for (std::size_t at = text.find(flag); at != std::string_view::npos;
       at = text.find(flag, at + 1)) {
    const std::size_t end = at + flag.size();
    if (end == text.size() || text[end] == ' ' || text[end] == ',') return true;
  }
  return false;
}

/// "--eval-interval, --eval-config have": what a warning is about, without its reason.
std::string_view subject(std::string_view text) {
  return text.substr(0, std::min(text.find(": "), text.find(" no effect")));
}

bool is_told(const ParsedFlags& flags, const std::string& name) {
  return std::ranges::any_of(
      flags.warnings, [&](const std::string& text) { return mentions(subject(text), name); });
}

/// Read, or of a row whose test says that it counts. `copy`: has records of its own.
bool has_use(const FlagRow& row, const RunConfig& config, const RunConfig& copy, bool is_critic) {
  return any_meant(row, [&](const FlagRow& meant) {
    // Stations read the actor's flags alone.
    const bool has_test = !is_critic && meant.counts && meant.counts->holds != nullptr;
    return was_read(meant, config) || (has_test && meant.counts->holds(copy));
  });
}

void add_unread(const std::vector<std::string>& given, const RunConfig& config,
                std::string_view prefix, std::vector<std::string>& unread) {
  const RunConfig copy = copy_with_own_records(config);
  const bool is_critic = !prefix.empty();
  for (const std::string& name : given) {
    const FlagRow* row = find_flag(name);
    if (row == nullptr || !has_effect(*row) || has_use(*row, config, copy, is_critic)) continue;
    std::string full = std::string(prefix) + name;
    if (std::ranges::find(unread, full) == unread.end()) unread.push_back(std::move(full));
  }
}

/// Set, not read, and not told before the run, because what it begins with or meets decides.
std::vector<std::string> unread_so_far(const ParsedFlags& flags, bool (*is_due)(ReadWhen)) {
  std::vector<std::string> unread;
  const RunConfig copy = copy_with_own_records(flags.config);
  for (const std::string& name : flags.given) {
    const FlagRow* row = find_flag(name);
    if (row == nullptr || !has_effect(*row) || !is_due(row->read_when)) continue;
    if (was_read(*row, flags.config) || !row->counts->holds(copy) || is_told(flags, name)) continue;
    if (std::ranges::find(unread, name) == unread.end()) unread.push_back(name);
  }
  return unread;
}

std::string sentence(const std::string& name, const RunConfig& config) {
  const bool is_critic = name.starts_with(kOfCritic);
  const std::string bare = is_critic ? name.substr(kOfCritic.size()) : name;
  const FlagRow& row = *find_flag(bare);
  if (!is_critic && has_users_code(config)) {
    return fmt::format(
        "{}: nothing of slime reads it in this run ({}); functions of yours find it "
        "in `args`",
        bare, row.meaning);
  }
  std::string text =
      is_critic
          ? fmt::format(
                "--megatron-config-path: critic: {} has no effect: nothing of a "
                "critic reads it ({})",
                bare, row.meaning)
          : fmt::format("{} has no effect: nothing in this run reads it ({})", bare, row.meaning);
  if (row.counts && !row.counts->words.empty() && !is_critic)
    text += fmt::format("; it counts with {}", row.counts->words);
  return text;
}

}  // namespace

void forget_reads(const RunConfig& config) {
  for (const FlagRow& row : flag_table())
    visit_flag(row, config, [](const auto& flag) { flag.forget_read(); });
  config.num_engine_workers.forget_read();
  if (config.critic != nullptr) forget_reads(*config.critic);
}

std::vector<std::string> unread_flags(const ParsedFlags& flags) {
  std::vector<std::string> unread;
  add_unread(flags.given, flags.config, "", unread);
  std::erase_if(unread, [&](const std::string& name) { return is_told(flags, name); });
  if (flags.config.critic != nullptr)
    add_unread(flags.given_to_critic, *flags.config.critic, kOfCritic, unread);
  return unread;
}

void note_unread_flags(ParsedFlags& flags) {
  flags.unread = unread_flags(flags);
  for (const std::string& name : flags.unread)
    flags.warnings.push_back(sentence(name, flags.config));
}

std::vector<std::string> unread_at_start(const ParsedFlags& flags) {
  if (flags.config.streaming_data.peek()) return {};
  std::vector<std::string> sentences;
  const auto is_due = [](ReadWhen when) { return when == ReadWhen::kAtStart; };
  for (const std::string& name : unread_so_far(flags, is_due))
    sentences.push_back(sentence(name, flags.config));
  return sentences;
}

std::string still_unread(const ParsedFlags& flags) {
  const auto is_due = [](ReadWhen when) { return when != ReadWhen::kTranslated; };
  std::vector<std::string> unread = unread_so_far(flags, is_due);
  unread.insert(unread.begin(), flags.unread.begin(), flags.unread.end());
  std::vector<std::string> rest;
  for (const std::string& name : unread) {
    const bool is_critic = name.starts_with(kOfCritic);
    const std::string bare = is_critic ? name.substr(kOfCritic.size()) : name;
    // What a function of the user's reads is not known.
    if (!is_critic && has_users_code(flags.config)) continue;
    const RunConfig& config = is_critic ? *flags.config.critic : flags.config;
    if (!was_read(*find_flag(bare), config)) rest.push_back(name);
  }
  std::string ignored;
  if (!flags.ignored.empty())
    ignored = fmt::format("unknown and ignored: {}", fmt::join(flags.ignored, ", "));
  if (rest.empty()) return ignored;
  if (!ignored.empty()) ignored = "; " + ignored;
  return fmt::format("{} had no effect in this run: nothing read {}{}", fmt::join(rest, ", "),
                     rest.size() == 1 ? "it" : "them", ignored);
}

bool has_users_code(const RunConfig& config) {
  const auto is_set = [](const Flag<std::string>& path) { return !path.peek().empty(); };
  if (is_set(config.custom_generate_function_path) || is_set(config.custom_loss_function_path) ||
      is_set(config.custom_loss_library) || is_set(config.custom_advantage_function_path) ||
      is_set(config.rollout_data_postprocess_path) || is_set(config.custom_megatron_init_path) ||
      is_set(config.custom_megatron_before_log_prob_hook_path) ||
      is_set(config.custom_megatron_before_train_step_hook_path))
    return true;
  const RunConfig copy = copy_with_own_records(config);
  return !users_functions(copy).empty() || !copy.users_correction().empty() ||
         !copy.users_reducer().empty() ||
         copy.rollout_function_path.get().find(".py") != std::string::npos;
}

}  // namespace slime::config
