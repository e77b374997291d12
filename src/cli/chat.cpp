#include "cli/chat.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

#include "chat/chat.h"
#include "cli/by_name.h"
#include "cli/device.h"
#include "cli/local_server.h"
#include "cli/options.h"
#include "cli/run_model.h"
#include "cli/serving.h"
#include "cli/standard_output.h"
#include "cluster/launch_environment.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/folder_name.h"
#include "core/json.h"
#include "core/safe_text.h"
#include "hub/settings.h"
#include "report/terminal.h"
#include "text/unicode/unicode.h"

namespace slime::cli {
namespace {

namespace fs = std::filesystem;

/// An answer on two cores may let long be waited for, its first token most of all.
constexpr std::chrono::minutes kLongestSilence{10};

struct Options {
  std::string word;  // MODEL, RUN or URL
  std::string system, message, api_key_file, tools_file;
  std::vector<std::string> settings;
  bool shows_json = false;
  bool keeps_no_history = false;
  LocalServerOptions local;
};

void add_options(CLI::App& app, Options& options) {
  app.add_option("MODEL", options.word,
                 "a model directory, a model's name on Hugging Face's hub, a run directory (its "
                 "newest checkpoint; RUN@120: that of step 120), or the address of a server: "
                 "http://127.0.0.1:30000")
      ->required();
  app.add_option("--message", options.message, "ask this, print the answer, end");
  app.add_option("--system", options.system, "the system message");
  app.add_option("--set", options.settings,
                 "NAME=VALUE as /set takes it: temperature=0.7; may be given several times")
      ->allow_extra_args(false);
  app.add_option("--tools", options.tools_file,
                 "a JSON file with the tools that the model may call, as chat completions take "
                 "them; /result answers a call");
  app.add_flag("--json", options.shows_json,
               "print an object for each answer: content, thoughts, calls, usage");
  app.add_option("--chat-template", options.local.chat_template,
                 "a file with the template; default: the model's own");
  app.add_option("--context-length", options.local.context_length,
                 "tokens of the conversation; default: the model's")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--dtype", options.local.dtype, "auto (as stored), float32, bfloat16 or float16")
      ->check(CLI::IsMember({"auto", "float32", "bfloat16", "float16"}));
  add_device_options(app, options.local.device);
  app.add_option("--api-key-file", options.api_key_file,
                 "of a server: a file with its key (or set SLIME_API_KEY)");
  app.add_flag("--no-history", options.keeps_no_history, "keep no questions for the arrow keys");
}

void require_utf8(const Options& options) {
  const auto require = [](const char* flag, const std::string& text) {
    if (!text::is_valid_utf8(text)) throw ConfigError(fmt::format("{}: is not UTF-8", flag));
  };
  require("--message", options.message);
  require("--system", options.system);
  for (const std::string& word : options.settings) require("--set", word);
}

json::array read_tools(const std::string& file) {
  if (file.empty()) return {};
  const json::value tools = read_json_file(file);
  if (!tools.is_array())
    throw ConfigError(
        fmt::format("{}: should be a list of tools, as chat completions take them", file));
  return tools.get_array();
}

chat::Settings read_settings(const std::vector<std::string>& words) {
  chat::Settings settings;
  for (const std::string& word : words) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos)
      throw ConfigError(fmt::format("--set {}: should be NAME=VALUE", word));
    settings.set(word.substr(0, equals), word.substr(equals + 1));
  }
  return settings;
}

/// $XDG_STATE_HOME/slime/chat_history, or below ~/.local/state; empty: there is no home.
fs::path history_file() {
  const auto state = cluster::own_environment("XDG_STATE_HOME");
  if (state && !state->empty()) return fs::path(*state) / "slime" / "chat_history";
  const auto home = cluster::own_environment("HOME");
  if (!home || home->empty()) return {};
  return fs::path(*home) / ".local" / "state" / "slime" / "chat_history";
}

/// The server of the model, which `local` holds where it is this process's own.
chat::ServerAddress open_server(const Options& options, std::unique_ptr<LocalServer>& local) {
  std::string url = chat::server_url(options.word);
  if (!url.empty() && !fs::exists(options.word)) {
    const hub::Settings network = hub::settings_of(cluster::own_environment);
    chat::ServerAddress server{.url = std::move(url),
                               .api_key = read_key(options.api_key_file, "SLIME_API_KEY"),
                               .web = network.web};
    server.web.silence_limit = kLongestSilence;
    return server;
  }
  LocalServerOptions own = options.local;
  ModelPlace place = model_of_word(options.word, "slime chat");
  own.directory = std::move(place.directory);
  own.adapter = std::move(place.adapter);
  own.name = fs::exists(options.word) ? folder_name(options.word) : name_of_word(options.word);
  local = std::make_unique<LocalServer>(own);
  return {.url = local->url(), .api_key = local->key(), .web = {.silence_limit = kLongestSilence}};
}

std::vector<std::string> completions_of(const std::string& begin) {
  std::vector<std::string> words;
  if (!begin.starts_with('/')) return words;
  for (const std::string& name : chat::command_names())
    if (name.starts_with(begin)) words.push_back(name);
  return words;
}

}  // namespace

int chat(std::span<const std::string> arguments) {
  Options options;
  CLI::App app("A chat with a model: questions from the terminal or from lines of a pipe.",
               "slime chat");
  add_options(app, options);
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  if (app.count("--message") > 0 && options.message.empty())
    throw ConfigError(
        "--message: should be a question, is empty; without it standard input is read");
  require_utf8(options);
  chat::ChatOptions how{.tools = read_tools(options.tools_file), .shows_json = options.shows_json};
  chat::Settings settings = read_settings(options.settings);
  const bool is_typed =
      options.message.empty() && ::isatty(STDIN_FILENO) != 0 && ::isatty(STDOUT_FILENO) != 0;
  // Before any thread is started: it blocks Ctrl-C in all of them.
  const std::unique_ptr<chat::LineSource> lines =
      is_typed ? chat::edited_lines(options.keeps_no_history ? fs::path() : history_file(),
                                    completions_of)
               : chat::plain_lines();
  how.takes_interrupts = is_typed;

  const SystemClock clock;
  const Clock::TimePoint begin = clock.now();
  std::unique_ptr<LocalServer> local;
  const chat::ServerAddress server = open_server(options, local);
  const auto model = chat::first_model(server);
  if (!model)
    throw ConfigError(fmt::format("{}: {}", server.url, safe_text(model.error().message)));
  how.model = *model;
  if (is_typed) {
    const std::string what = local ? fmt::format("{}, after {:.1f} s", local->description(),
                                                 seconds_between(begin, clock.now()))
                                   : "at " + server.url;
    fmt::print(stderr, "{} ({}); /help lists commands, Ctrl-D ends\n", safe_text(*model), what);
  }

  chat::Screen screen(report::detect_terminal(), write_out);
  chat::Conversation conversation;
  conversation.set_system(options.system);
  chat::Chat chat(server, std::move(how), std::move(conversation), std::move(settings), screen,
                  write_out);
  const bool went_well = options.message.empty() ? chat.run(*lines) : chat.ask(options.message);
  return went_well || is_typed ? 0 : 1;
}

}  // namespace slime::cli
