#include "cli/by_name.h"
#include "cli/options.h"
#include "cli/tokenize.h"
#include "core/json_lines.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::cli {

int detokenize(std::span<const std::string> arguments) {
  std::string model, file;
  bool stream = false, skip_special_tokens = false;
  CLI::App app("JSON lines {\"ids\": [...]} to {\"text\": ...}.", "slime detokenize");
  app.add_option("--model", model,
                 "directory with tokenizer.json or a tiktoken file, or a model's name")
      ->required();
  app.add_flag("--skip-special-tokens", skip_special_tokens, "leave out tokens marked special");
  app.add_flag("--stream", stream,
               "also \"pieces\", the text each id releases in order, and \"flush\", the rest");
  app.add_option("FILE", file, "input; standard input when it is missing or -");
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  model = model_by_name(model, hub::Wanted::kText, "--model", "slime detokenize");

  const auto tokenizer = text::Tokenizer::load(model);
  text::StreamDetokenizer detokenizer(*tokenizer, skip_special_tokens);
  JsonLines input(file);
  while (const auto line = input.next()) {
    const auto ids = input.fields(*line).token_ids("ids", int64_t{1} << 31);
    json::object out{{"text", tokenizer->decode(ids, skip_special_tokens)}};
    if (stream) {
      json::array pieces;
      for (const TokenId id : ids) pieces.emplace_back(detokenizer.push(id));
      out["pieces"] = std::move(pieces);
      out["flush"] = detokenizer.flush();
    }
    write_json_line(std::move(out));
  }
  return 0;
}

}  // namespace slime::cli
