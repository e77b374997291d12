#pragma once

/// A command's manual: its options as --help, shell completion and "did you mean" read them, and the answer to
/// `slime VERB --help WORDS`.
///
///   --help             the options that people begin with, or all of a small command
///   --help data        the options of a topic
///   --help --lr        one option: default, allowed words, what the rules say of it, page
///   --help learning    a search, where the word is neither
///   --help all         all options, those without effect here too

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace slime::help {

/// Kind of name that an option takes as its value, for completion.
enum class Names { kNothing, kFile, kFolder, kModel, kRun, kData };

struct Option {
  std::vector<std::string> names;         // "--port", "-p"; of an argument without name: "MODEL"
  std::string value = {};                 // "N", "WORD", "WORDS..."; empty: a switch
  std::string meaning = {};               // "port; 0 picks a free one"
  std::string fallback = {};              // the default as users type it; empty: none
  std::vector<std::string> choices = {};  // allowed words; empty: any
  std::string range = {};                 // "1 - 65536"; empty: not said here
  std::string section = {};               // title of its group; empty: none
  Names value_names = Names::kNothing;
  bool is_argument = false;  // without name: its place says what it is
  bool is_required = false;
  bool is_idle = false;  // no effect here, or refused

  bool takes_several() const { return value.ends_with("..."); }
  bool is_named(std::string_view name) const;
};

/// Options under a title.
struct Section {
  std::string title;
  std::vector<std::string> names;
};

struct Topic {
  std::string word;   // "reward"
  std::string title;  // "Reward"
  std::string page;   // "docs/rewards.md"; empty: none
  std::vector<std::string> names;
};

struct Manual {
  std::string command;  // "slime serve"
  std::string summary;  // sentences
  std::vector<std::string> usage = {};
  std::vector<std::string> words = {};  // subcommands
  std::vector<Section> first = {};      // what --help shows; empty: every option that has an effect
  std::vector<Topic> topics = {};
  std::vector<Option> options;
  bool takes_run_flags = false;  // those of slime train too
  /// More about one option, each a paragraph; may be null.
  std::function<std::vector<std::string>(const Option& option)> details = {};
  /// "; here it is --lr", of a word that is no option; may be null.
  std::function<std::string(const std::string& word)> hint = {};

  const Option* find(std::string_view name) const;
};

struct Style {
  int width = 80;
  bool has_color = false;
};

/// A line of its own, bold where there are colours.
std::string title_line(std::string_view title, const Style& style);

struct Answer {
  std::string text;
  bool is_found = true;
};

/// `words` are those behind --help.
Answer answer(const Manual& manual, std::span<const std::string> words, const Style& style);

/// The words behind --help or -h; nothing where neither is among the arguments. `--lr --help` is `--help --lr`.
std::optional<std::vector<std::string>> words_behind_help(std::span<const std::string> arguments);

/// The manual for programs: command, summary, options with names, value, meaning, default, choices.
json::object to_json(const Manual& manual);

/// The first clause of a meaning: up to a semicolon, or a parenthesis that is not its beginning.
std::string_view first_clause(std::string_view meaning);

}  // namespace slime::help
