#include "cli/grammar.h"

#include <memory>

#include "cli/by_name.h"
#include "cli/options.h"
#include "core/json_lines.h"
#include "text/grammar/grammar_record.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::cli {

int grammar(std::span<const std::string> arguments) {
  std::string file, model_path;
  CLI::App app(
      "Grammars of constrained decoding: which texts they accept.\n\n"
      "In:  {\"kind\": \"regex\", \"src\": \"[0-9]{4}\", \"texts\": [\"2026\", \"20-6\"]}\n"
      "Out: {\"compiled\": true, \"error\": null, \"results\": [{\"accepted\": true, "
      "\"refused_at\": null},\n"
      "      {\"accepted\": false, \"refused_at\": 2}]}\n\n"
      "kind: json_schema, json_object, regex, ebnf or structural_tag; src: its text, or the JSON "
      "that it holds; \"max_whitespace\" may stand beside it. A source that is refused has an "
      "error (docs/grammars.md says what is).",
      "slime grammar");
  app.add_option("--model-path", model_path,
                 "a model directory: texts are tried as its tokens too; \"differs\" is true, and "
                 "the exit code 1, when they give another answer than bytes");
  app.add_option("FILE", file, "input; standard input when it is missing or -");
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;

  std::unique_ptr<text::Tokenizer> tokenizer;
  if (!model_path.empty()) {
    tokenizer = text::Tokenizer::load(
        model_by_name(model_path, hub::Wanted::kText, "--model-path", "slime grammar"));
  }
  const text::GrammarRecords records(tokenizer.get());
  bool differs = false;
  JsonLines input(file);
  while (const auto line = input.next()) {
    const json::object answer = records.record(*line, input.where());
    if (const auto* difference = answer.if_contains("differs")) differs |= difference->get_bool();
    write_json_line(answer);
  }
  return differs ? 1 : 0;
}

}  // namespace slime::cli
