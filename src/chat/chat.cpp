#include "chat/chat.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <cctype>
#include <cstdio>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

#include "core/error.h"
#include "core/nearest_name.h"
#include "core/replace_file.h"
#include "core/safe_text.h"

namespace slime::chat {
namespace {

struct CommandRow {
  const char* name;
  const char* words;
  const char* what;
};

constexpr std::array<CommandRow, 13> kCommands{{
    {"/help", "", "this list"},
    {"/system", "TEXT", "the system message, from the next question on; without TEXT: shows it"},
    {"/reset", "", "begin anew; system message and settings stay"},
    {"/undo", "", "take back the last question and its answer"},
    {"/retry", "", "draw the last answer again"},
    {"/set", "NAME VALUE",
     "temperature 0.7, max_tokens 200, thinking off; VALUE default takes it "
     "away; alone: the names, and what is set"},
    {"/thoughts", "",
     "unfold thoughts: the last answer's now, later ones as they come; again: fold"},
    {"/logprobs", "", "show each token's probability, or stop showing it"},
    {"/result", "TEXT", "answer a call of a tool"},
    {"/history", "", "the conversation so far"},
    {"/save", "FILE", "the conversation as {\"messages\": [...]}, a row that slime train reads"},
    {"/exit", "", "end; so does Ctrl-D"},
    {"//...", "", "a question that begins with /"},
}};

std::string trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(" \t") - begin + 1));
}

/// Waits for Ctrl-C as long as it lives, and stops an answer then.
class InterruptWatch {
 public:
  explicit InterruptWatch(std::stop_source& answer)
      : thread_([this, &answer] {
          sigset_t set;
          ::sigemptyset(&set);
          ::sigaddset(&set, SIGINT);
          constexpr timespec kWait{.tv_sec = 0, .tv_nsec = 50'000'000};
          while (!is_over_)
            if (::sigtimedwait(&set, nullptr, &kWait) == SIGINT) answer.request_stop();
        }) {}
  ~InterruptWatch() { is_over_ = true; }
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;

 private:
  std::atomic<bool> is_over_{false};
  std::jthread thread_;  // last: joined first
};

}  // namespace

std::string help_text() {
  std::string text;
  for (const CommandRow& row : kCommands)
    text += fmt::format("  {:<20}{}\n", fmt::format("{} {}", row.name, row.words), row.what);
  return text + "  Ctrl-C              stop the answer\n  \\ at a line's end   goes on below\n";
}

const std::vector<std::string>& command_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const CommandRow& row : kCommands)
      if (std::isalpha(static_cast<unsigned char>(row.name[1])) != 0) all.emplace_back(row.name);
    return all;
  }();
  return names;
}

Chat::Chat(const ServerAddress& server, ChatOptions options, Conversation conversation,
           Settings settings, Screen& screen, Screen::Write write)
    : server_(server),
      options_(std::move(options)),
      conversation_(std::move(conversation)),
      settings_(std::move(settings)),
      screen_(screen),
      write_(std::move(write)) {}

void Chat::say(std::string_view text) const {
  std::fputs((safe_text(text) + "\n").c_str(), stderr);  // messages of a server are among it
}

bool Chat::run(LineSource& lines) {
  std::string question;
  while (true) {
    const TypedLine line = lines.next(question.empty() ? "> " : ". ");
    if (line.how == LineEnd::kInterrupted) {
      question.clear();
      continue;
    }
    if (line.how == LineEnd::kEnd) {
      if (!question.empty()) ask(question);
      return !has_failed_;
    }
    if (question.size() + line.text.size() > kLongestQuestion)
      throw ConfigError(
          fmt::format("a question may have {} MiB, this one has more", kLongestQuestion >> 20));
    if (line.text.ends_with('\\')) {
      question += line.text.substr(0, line.text.size() - 1) + "\n";
      continue;
    }
    question += line.text;
    const std::string whole = std::exchange(question, "");
    if (trimmed(whole).empty()) continue;
    if (whole.starts_with('/') && !whole.starts_with("//")) {
      if (command(whole) == Then::kEnd) return !has_failed_;
    } else {
      ask(whole.starts_with("//") ? whole.substr(1) : whole);
    }
  }
}

Chat::Then Chat::command(const std::string& line) {
  const std::size_t space = line.find_first_of(" \t");
  const std::string name = line.substr(0, space);
  const std::string rest = space == std::string::npos ? "" : trimmed(line.substr(space));
  if (name == "/exit" || name == "/quit") return Then::kEnd;
  try {
    do_command(name, rest);
  } catch (const ConfigError& error) {
    say(fmt::format("{}: {}", name, error.what()));
    has_failed_ = true;
  }
  return Then::kGoOn;
}

void Chat::do_command(std::string_view name, const std::string& rest) {
  if (name == "/help") {
    write_(help_text());
  } else if (name == "/system") {
    if (rest.empty())
      write_(safe_text(conversation_.system().empty() ? "(none)" : conversation_.system()) + "\n");
    else
      conversation_.set_system(rest);
  } else if (name == "/reset") {
    conversation_.reset();
  } else if (name == "/undo") {
    if (!conversation_.undo()) throw ConfigError("there is no question to take back");
  } else if (name == "/retry") {
    if (!conversation_.take_back_answer() && conversation_.is_empty())
      throw ConfigError("there is no answer to draw again");
    answer();
  } else if (name == "/set") {
    const std::size_t space = rest.find_first_of(" \t");
    if (rest.empty()) {
      write_(Settings::names());
      write_((settings_.text().empty() ? "nothing is set" : settings_.text()) + "\n");
    } else if (space == std::string::npos) {
      throw ConfigError(fmt::format("{} has no value; `default` takes a setting away", rest));
    } else {
      settings_.set(rest.substr(0, space), trimmed(rest.substr(space)));
    }
  } else if (name == "/thoughts") {
    look_.unfolds_thoughts = !look_.unfolds_thoughts;
    if (look_.unfolds_thoughts) screen_.show_thoughts(last_);
  } else if (name == "/logprobs") {
    look_.shows_probabilities = !look_.shows_probabilities;
  } else if (name == "/result") {
    if (!conversation_.add_result(rest)) throw ConfigError("no call waits for a result");
    const std::vector<std::string> open = conversation_.open_calls();
    if (open.empty())
      answer();
    else
      say(fmt::format("still without a result: {}", fmt::join(open, ", ")));
  } else if (name == "/history") {
    for (const json::value& message : conversation_.messages()) {
      const json::value* content = message.as_object().if_contains("content");
      write_(fmt::format(
          "{}: {}\n", std::string_view(message.at("role").as_string()),
          safe_text(content != nullptr && content->is_string() ? content->as_string() : "")));
    }
  } else if (name == "/save") {
    save(rest);
  } else {
    const std::vector<std::string_view> names(command_names().begin(), command_names().end());
    const auto nearest = nearest_name(name, names);
    throw ConfigError(nearest ? fmt::format("is no command; did you mean {}?", *nearest)
                              : "is no command; /help lists them, // begins a question with /");
  }
}

bool Chat::ask(std::string_view question) {
  conversation_.ask(question);
  return answer();
}

json::object Chat::request() const {
  json::object request = settings_.members();
  request["model"] = options_.model;
  request["messages"] = conversation_.messages();
  request["stream"] = true;
  request["stream_options"] = {{"include_usage", true}};
  if (!options_.tools.empty()) request["tools"] = options_.tools;
  if (look_.shows_probabilities) request["logprobs"] = true;
  return request;
}

AnswerEnd Chat::complete(const json::object& request) {
  const OnPart on_part = [this](const AnswerPart& part, const Answer& answer) {
    if (!options_.shows_json) screen_.add(part, answer);
  };
  std::stop_source stop;
  std::optional<InterruptWatch> watch;
  if (options_.takes_interrupts) watch.emplace(stop);
  return chat::complete(server_, request, on_part, stop.get_token());
}

bool Chat::answer() {
  screen_.begin(look_);
  AnswerEnd end = complete(request());
  const bool has_something =
      !end.answer.content.empty() || !end.answer.calls.empty() || !end.answer.thoughts.empty();
  if (!end.problem.empty()) {
    if (has_something && !options_.shows_json) screen_.end(end.answer, false);
    say("no answer: " + end.problem);
    has_failed_ = true;
    conversation_.take_back_question();  // it may be asked again
    return false;
  }
  if (options_.shows_json)
    show_json(end.answer);
  else
    screen_.end(end.answer, end.is_stopped);
  // Calls that were broken off are none.
  if (end.is_stopped) end.answer.calls.clear();
  conversation_.answer(end.answer.content, end.answer.calls);
  last_ = std::move(end.answer);
  return true;
}

void Chat::show_json(const Answer& answer) const {
  json::object object{{"content", answer.content}, {"finish_reason", answer.finish}};
  if (!answer.thoughts.empty()) object["reasoning_content"] = answer.thoughts;
  if (!answer.calls.empty()) {
    json::array calls;
    for (const ToolCall& call : answer.calls)
      calls.push_back(json::object{{"name", call.name}, {"arguments", call.arguments}});
    object["tool_calls"] = std::move(calls);
  }
  object["usage"] = {{"prompt_tokens", answer.prompt_tokens},
                     {"completion_tokens", answer.answer_tokens}};
  write_(json_text(object) + "\n");
}

void Chat::save(const std::string& file) {
  if (file.empty()) throw ConfigError("needs the name of a file");
  const std::filesystem::path path(file);
  if (std::filesystem::exists(path) && !saved_.contains(path))
    throw ConfigError(fmt::format("{} is there already, and is not replaced", file));
  json::object row{{"messages", conversation_.messages()}};
  if (!options_.tools.empty()) row["tools"] = options_.tools;
  try {
    replace_file(path, json_text(row) + "\n");
  } catch (const std::exception& error) {
    throw ConfigError(error.what());
  }
  saved_.insert(path);
  say(fmt::format("{}: {} messages", file, row.at("messages").as_array().size()));
}

}  // namespace slime::chat
