#include "cli/options.h"

#include <algorithm>
#include <cstdio>

#include "cli/app_manual.h"
#include "core/nearest_name.h"
#include "report/terminal.h"

namespace slime::cli {
namespace {

/// A line for each option that `app` does not have.
void tell_unknown_options(const CLI::App& app) {
  const help::Manual manual = manual_of(app);
  for (const std::string& word : app.remaining()) {
    if (!word.starts_with("-")) continue;
    const auto meant = option_meant_by(manual, word);
    fmt::print(stderr, "{}: unknown option {}{}\n", app.get_name(), word,
               meant ? fmt::format("; did you mean {}?", *meant) : "");
  }
}

/// Of a value that is none of its option's words.
std::string word_meant(const CLI::App& app, std::span<const std::string> arguments) {
  const help::Manual manual = manual_of(app);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::size_t equals = arguments[i].find('=');
    const help::Option* option = manual.find(arguments[i].substr(0, equals));
    const bool has_word = equals != std::string::npos || i + 1 < arguments.size();
    if (option == nullptr || option->choices.empty() || !has_word) continue;
    const std::string word =
        equals == std::string::npos ? arguments[i + 1] : arguments[i].substr(equals + 1);
    if (std::ranges::find(option->choices, word) != option->choices.end()) continue;
    const std::vector<std::string_view> choices(option->choices.begin(), option->choices.end());
    if (std::string meant = did_you_mean(word, choices); !meant.empty()) return meant;
  }
  return "";
}

int refuse(const CLI::App& app, const CLI::ParseError& error, const std::string& meant = "") {
  fmt::print(stderr, "{}: {}{}\n{} --help lists the options\n", app.get_name(), error.what(), meant,
             app.get_name());
  return 2;
}

/// `app`, or the subcommand that the first argument names.
const CLI::App& app_of(const CLI::App& app, std::span<const std::string> arguments) {
  if (!arguments.empty())
    for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
      if (sub->get_name() == arguments[0]) return *sub;
  return app;
}

}  // namespace

bool asks_for_manual(std::span<const std::string> arguments) {
  return arguments.size() == 1 && arguments[0] == kHelpJson;
}

CLI::Validator finite_range(double low, double high) {
  return {[low, high](const std::string& word) -> std::string {
            double number = 0;
            const bool is_number = CLI::detail::lexical_cast(word, number);
            if (is_number && number >= low && number <= high) return "";
            return fmt::format("{}: should be a number from {} to {}", word, low, high);
          },
          fmt::format("FLOAT in [{} - {}]", low, high)};
}

help::Style style_of_terminal() {
  return {.width = report::terminal_width(), .has_color = report::detect_terminal().has_color};
}

int print_answer(const help::Manual& manual, std::span<const std::string> words) {
  const help::Answer answer = help::answer(manual, words, style_of_terminal());
  fmt::print("{}", answer.text);
  return answer.is_found ? 0 : 2;
}

std::optional<std::string> option_meant_by(const help::Manual& manual, const std::string& word) {
  const std::string name = word.substr(0, word.find('='));
  std::vector<std::string_view> names{"--help"};
  for (const help::Option& option : manual.options)
    if (!option.is_argument) names.insert(names.end(), option.names.begin(), option.names.end());
  if (const auto nearest = nearest_name(name, names)) return std::string(*nearest);
  for (const std::string_view each : names)
    if (name.starts_with(std::string(each) + "-")) return std::string(each);
  return std::nullopt;
}

std::optional<int> parse_options(CLI::App& app, std::span<const std::string> arguments) {
  if (asks_for_manual(arguments)) throw ManualAsked{manual_of(app)};
  const CLI::App& meant = app_of(app, arguments);
  const auto own = &meant == &app ? arguments : arguments.subspan(1);
  if (const auto words = help::words_behind_help(own))
    return print_answer(manual_of(meant), *words);
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(),
                                       arguments.rend()));  // CLI11 takes them from the back
  } catch (const CLI::ExtrasError& error) {
    tell_unknown_options(app);
    return refuse(app, error);
  } catch (const CLI::RequiredError& error) {
    tell_unknown_options(app);  // --modle instead of --model
    return refuse(app, error);
  } catch (const CLI::ValidationError& error) {
    return refuse(app, error, word_meant(meant, own));
  } catch (const CLI::ParseError& error) {
    return refuse(app, error);
  }
  return std::nullopt;
}

}  // namespace slime::cli
