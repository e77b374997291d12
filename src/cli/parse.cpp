#include "cli/parse.h"

#include <cstdint>

#include "cli/options.h"
#include "core/json_lines.h"
#include "text/messages/parse_record.h"

namespace slime::cli {

int parse(std::span<const std::string> arguments) {
  std::string file;
  text::ParseOptions options;
  CLI::App app(
      "Outputs of models to messages: thoughts, content and tool calls.\n\n"
      "In:  {\"text\": ..., \"tools\": [...], \"tool_choice\": \"auto\", \"tool_call_parser\": "
      "\"qwen25\",\n"
      "      \"reasoning_parser\": \"qwen3\", \"thinking_open\": false, \"finish\": \"stop\"}\n"
      "Out: {\"content\": ..., \"reasoning_content\": ..., \"tool_calls\": [...], "
      "\"finish_reason\": ...}\n\n"
      "A parser is named as SGLang names it; \"auto\" chooses it by \"chat_template\". \"prompt\", "
      "rendered, may stand for \"thinking_open\".",
      "slime parse");
  app.add_flag("--splits", options.tries_splits,
               "try every split of a text in two, single characters and 50 random splits; "
               "\"differs\" shows one with another message, and the exit code is 1");
  app.add_option("--seed", options.seed, "of ids and random splits");
  app.add_option("FILE", file, "input; standard input when it is missing or -");
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;

  bool is_same = true;
  JsonLines input(file);
  while (const auto line = input.next()) {
    const json::object message = text::parse_record(*line, input.where(), options);
    if (options.tries_splits) is_same &= message.at("differs").is_null();
    write_json_line(message);
    ++options.seed;
  }
  return is_same ? 0 : 1;
}

}  // namespace slime::cli
