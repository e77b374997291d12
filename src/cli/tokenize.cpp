#include "cli/tokenize.h"

#include "cli/by_name.h"
#include "cli/options.h"
#include "core/json_lines.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::cli {

int tokenize(std::span<const std::string> arguments) {
  std::string model, file;
  bool no_special_tokens = false;
  CLI::App app("JSON lines {\"text\": ...} to {\"ids\": [...]}.", "slime tokenize");
  app.add_option("--model", model,
                 "directory with tokenizer.json or a tiktoken file, or a model's name")
      ->required();
  app.add_flag("--no-special-tokens", no_special_tokens,
               "do not add the post-processor's tokens (a BOS, ...)");
  app.add_option("FILE", file, "input; standard input when it is missing or -");
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  model = model_by_name(model, hub::Wanted::kText, "--model", "slime tokenize");

  const auto tokenizer = text::Tokenizer::load(model);
  JsonLines input(file);
  while (const auto line = input.next()) {
    const auto ids = tokenizer->encode(*input.fields(*line).text("text"),
                                       {.add_special_tokens = !no_special_tokens});
    write_json_line({{"ids", json::value_from(ids)}});
  }
  return 0;
}

}  // namespace slime::cli
