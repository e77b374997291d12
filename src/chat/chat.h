#pragma once

/// A chat: questions and commands from lines, answers from a server to the screen.

#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "chat/completions.h"
#include "chat/conversation.h"
#include "chat/line_source.h"
#include "chat/screen.h"
#include "chat/settings.h"

namespace slime::chat {

struct ChatOptions {
  std::string model;        // as the server calls it
  json::array tools = {};   // their descriptions, as chat completions take them
  bool shows_json = false;  // an object for each answer instead of its text
  /// Ctrl-C stops the answer, not the program: SIGINT is blocked, and waited for meanwhile.
  bool takes_interrupts = false;
};

/// Text of /help: the commands and what they do.
std::string help_text();
/// "/system", ...
const std::vector<std::string>& command_names();

/// One class because commands change the conversation, the settings and the screen of the same chat.
class Chat final {
 public:
  /// References outlive the object.
  Chat(const ServerAddress& server, ChatOptions options, Conversation conversation,
       Settings settings, Screen& screen, Screen::Write write);

  /// Takes lines until they end. False: a question had no answer.
  bool run(LineSource& lines);
  /// One question and its answer. False: there was none; its reason is on standard error.
  bool ask(std::string_view question);

 private:
  enum class Then { kGoOn, kEnd };
  Then command(const std::string& line);
  void do_command(std::string_view name, const std::string& rest);
  bool answer();
  AnswerEnd complete(const json::object& request);
  json::object request() const;
  void save(const std::string& file);
  void say(std::string_view text) const;
  void show_json(const Answer& answer) const;

  const ServerAddress& server_;
  const ChatOptions options_;
  Conversation conversation_;
  Settings settings_;
  Screen& screen_;
  const Screen::Write write_;
  Screen::Look look_;
  Answer last_;
  std::set<std::filesystem::path> saved_;  // by this chat, which may replace them
  bool has_failed_ = false;
};

}  // namespace slime::chat
