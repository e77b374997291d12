#include "cli/generate.h"

#include <fmt/format.h>

#include <array>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string_view>

#include "cli/by_name.h"
#include "cli/device.h"
#include "cli/generate_rows.h"
#include "cli/grammar_options.h"
#include "cli/open_tokenizer.h"
#include "cli/options.h"
#include "cli/sampling_defaults.h"
#include "core/calendar.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/field_reader.h"
#include "core/json_lines.h"
#include "engine/engine.h"
#include "engine/http/generate_request.h"
#include "engine/http/generate_response.h"
#include "model/adapter_files.h"
#include "model/network.h"
#include "model/placement.h"
#include "text/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::cli {
namespace {

constexpr std::size_t kMaxLinesInFlight = 4096;

/// Fields of a line beside those of POST /generate.
constexpr auto kLineFields = std::to_array<std::string_view>({"ids", "messages", "options"});

/// The lines of a message, each behind `where`.
std::vector<std::string> at_place(const std::string& where, std::string_view message) {
  std::vector<std::string> problems;
  while (!message.empty()) {
    const std::size_t end = message.find('\n');
    problems.push_back(fmt::format("{}: {}", where, message.substr(0, end)));
    message.remove_prefix(end == std::string_view::npos ? message.size() : end + 1);
  }
  return problems;
}

/// Turns the forms of a line into those of POST /generate: "ids" are "input_ids", "messages" (with
/// "options" for the template) are the ids of the rendered chat, which ends where the assistant's
/// answer begins.
class LineReader {
 public:
  explicit LineReader(const engine::ServedModel& model) : model_(model) {}
  /// Of rows of a data set.
  LineReader(const engine::ServedModel& model, RowOptions rows)
      : model_(model), rows_(std::move(rows)) {}

  /// Throws ConfigError with each problem of the line; each begins with `where`.
  engine::GenerateCall to_call(json::object line, const std::string& where) {
    row_.reset();
    try {
      if (rows_) {
        RowRequest made = to_request(line, num_rows_++, *rows_);
        line = std::move(made.request);
        row_ = std::move(made.row);
      }
      take_line_fields(line);
      return engine::parse_generate_form(line, model_, kLineFields);
    } catch (const ConfigError& error) {
      throw ConfigError(at_place(where, error.what()));
    }
  }

  /// Of the line that to_call() read last.
  std::optional<json::object> take_row() { return std::exchange(row_, std::nullopt); }

 private:
  void take_line_fields(json::object& line) {
    const FieldReader fields(line, "");
    int num_prompts = 0;
    for (const char* name : {"text", "input_ids", "ids", "messages"})
      num_prompts += fields.has(name) ? 1 : 0;
    if (num_prompts > 1)
      throw ConfigError("text, input_ids, ids and messages are several prompts; give one of them");
    if (fields.has("options") && !fields.has("messages"))
      fields.note("options", "are those of messages, and there are none");
    if (const json::array* messages = fields.array("messages")) {
      json::object options{{"add_generation_prompt", true}};
      if (const json::object* given = fields.object("options")) {
        for (const auto& [key, value] : *given) options[key] = value;
      }
      line["input_ids"] = json::value_from(render(*messages, options));
    } else if (const json::value* ids = fields.find("ids")) {
      line["input_ids"] = json::value(*ids);
    }
    for (const std::string_view name : kLineFields) line.erase(name);
  }

  std::vector<TokenId> render(const json::array& messages, const json::object& given) {
    if (model_.tokenizer == nullptr)
      throw ConfigError("messages need a tokenizer, and this model has none");
    if (!chat_.has_value()) chat_.emplace(text::ChatTemplate::load(model_.path));
    auto options = text::to_chat_options(given);
    if (!options) throw ConfigError("options: " + options.error().message);
    options->now = local_time(SystemClock().unix_seconds());
    const auto rendered = chat_->render(messages, *options);
    if (!rendered)
      throw ConfigError("the chat template refused the messages: " + rendered.error().message);
    return model_.tokenizer->encode(*rendered);
  }

  const engine::ServedModel& model_;
  const std::optional<RowOptions> rows_;
  int64_t num_rows_ = 0;
  std::optional<json::object> row_;
  std::optional<text::ChatTemplate> chat_;
};

/// A file is read once before anything is generated: all lines that are no requests are told at
/// once, and nobody waits for answers that are then lost.
void check_lines(const std::string& file, LineReader& reader) {
  JsonLines input(file);
  std::vector<std::string> problems;
  int64_t num_bad = 0;
  for (bool is_over = false; !is_over;) {
    try {
      auto line = input.next();
      is_over = !line.has_value();
      if (line) reader.to_call(std::move(*line), input.where());
    } catch (const ConfigError& error) {
      ++num_bad;
      if (problems.size() < FieldReader::kMostProblems) problems.emplace_back(error.what());
    }
  }
  if (num_bad == 0) return;
  if (const auto more = num_bad - static_cast<int64_t>(problems.size()); more > 0)
    problems.push_back(fmt::format("{}: {} more lines are no requests", file, more));
  throw ConfigError(problems);
}

/// One input line and its answers, filled from the engine's thread.
struct Line {
  bool is_list = false;
  std::optional<json::object> row;  // of a data set
  std::vector<engine::GenerateResponse> responses;
  std::size_t num_open = 0;  // guarded by the mutex of Lines
};

class Lines {
 public:
  void submit(engine::Engine& engine, engine::GenerateCall call, const text::Tokenizer* tokenizer,
              std::optional<json::object> row) {
    auto line = std::make_unique<Line>();
    line->row = std::move(row);
    line->is_list = call.is_list;
    line->num_open = call.requests.size();
    engine::ResponseForm form;
    form.returns_text_in_logprobs = call.returns_text_in_logprobs;
    form.returns_prompt_token_ids = call.returns_prompt_token_ids;
    for (const auto& request : call.requests)
      line->responses.emplace_back(request, tokenizer, form);
    Line& open = *line;
    in_order_.push_back(std::move(line));
    for (std::size_t i = 0; i < call.requests.size(); ++i) {
      call.requests[i].stream_interval = 0;
      engine.submit(std::move(call.requests[i]), [this, &open, i](engine::GenerateUpdate update) {
        const std::lock_guard lock(mutex_);
        const bool is_last = update.finish.has_value();
        open.responses[i].add(update);
        if (is_last && --open.num_open == 0) finished_.notify_one();
      });
    }
  }

  std::size_t size() const { return in_order_.size(); }

  /// Waits for the oldest line and prints it.
  void print_oldest() {
    const std::unique_ptr<Line> line = std::move(in_order_.front());
    in_order_.pop_front();
    {
      std::unique_lock lock(mutex_);
      finished_.wait(lock, [&] { return line->num_open == 0; });
    }
    json::array answers;
    for (std::size_t i = 0; i < line->responses.size(); ++i) {
      answers.push_back(
          to_answer(line->responses[i], line->is_list ? static_cast<int64_t>(i) : -1));
    }
    if (line->row) {
      for (const json::value& answer : answers)
        write_json_line(to_answered_row(*line->row, answer.as_object()));
    } else if (line->is_list) {
      write_json_line(answers);
    } else {
      write_json_line(answers.at(0));
    }
  }

 private:
  /// What the server would answer: an error object for a request that cannot run.
  static json::value to_answer(engine::GenerateResponse& response, int64_t index) {
    const auto& finish = response.finish();
    if (finish->kind == engine::FinishReason::Kind::kAbort &&
        finish->cause == engine::FinishReason::Cause::kBadRequest) {
      return {{"error", {{"message", finish->message}}}};
    }
    return parse_json(response.to_json(index), "response");
  }

  std::mutex mutex_;
  std::condition_variable finished_;
  // Main thread; what the lines hold is guarded by mutex_.
  std::deque<std::unique_ptr<Line>> in_order_;
};

/// --rows and what belongs to it.
struct RowFlags {
  bool are_read = false;
  RowOptions form;
  std::string sampling_params = "{}";

  void check() const {
    if (!are_read && form.samples != 1) throw ConfigError("--samples: needs --rows");
    if (!are_read && sampling_params != "{}") throw ConfigError("--sampling-params: needs --rows");
    if (!are_read && form.applies_template)
      throw ConfigError("--apply-chat-template: needs --rows; a line of messages has its template");
    if (!are_read && form.input_key != "prompt") throw ConfigError("--input-key: needs --rows");
    options();
  }
  RowOptions options() const {
    RowOptions made = form;
    const json::value given = parse_json(sampling_params, "--sampling-params");
    if (!given.is_object()) throw ConfigError("--sampling-params: should be a JSON object");
    made.sampling_params = given.get_object();
    return made;
  }
};

void add_row_flags(CLI::App& app, RowFlags& rows) {
  app.add_flag("--rows", rows.are_read,
               "lines are rows of a data set, and so are the answers, one for each sample: prompt, "
               "response, label, status, metadata (docs/rejection_sampling.md)");
  app.add_option("--input-key", rows.form.input_key, "rows: field of the prompt")
      ->capture_default_str();
  app.add_flag("--apply-chat-template", rows.form.applies_template,
               "rows: a text is one message of a user");
  app.add_option("--samples", rows.form.samples, "rows: samples of each")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--sampling-params", rows.sampling_params,
                 "rows: those of POST /generate, as JSON; a row's own field wins");
}

}  // namespace

int generate(std::span<const std::string> arguments) {
  std::string directory, adapter, file;
  std::string dtype = "auto", sampling_defaults = "model";
  engine::EngineConfig config;
  DeviceOptions device;
  CLI::App app(
      "JSON lines {\"text\"|\"ids\"|\"messages\": ..., \"sampling_params\": {...}} to SGLang's "
      "response objects.\n"
      "All lines are generated together; answers come in the order of the input. Other fields of "
      "POST /generate\n"
      "(return_logprob, top_logprobs_num, ...) work as there.",
      "slime generate");
  app.add_option("--model", directory, "model directory, or a model's name on the hub")->required();
  app.add_option("--adapter", adapter, "PEFT directory of an adapter beside the model's weights");
  app.add_option("--dtype", dtype, "auto (as stored), float32, bfloat16 or float16");
  app.add_option("--max-running-requests", config.max_running_requests, "requests decoded together")
      ->check(CLI::Range(1, 65536));
  add_device_options(app, device);
  app.add_option("--random-seed", config.seed, "seed of requests without one");
  add_sampling_defaults(app, sampling_defaults);
  GrammarOptions grammar;
  add_grammar_options(app, grammar);
  bool skip_tokenizer_init = false;
  app.add_flag("--skip-tokenizer-init", skip_tokenizer_init,
               "token ids in and out only; also where the model has no tokenizer");
  RowFlags rows;
  add_row_flags(app, rows);
  app.add_option("FILE", file, "input; standard input when it is missing or -");
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  rows.check();
  const std::string word = directory;
  directory = model_by_name(directory, hub::Wanted::kModel, "--model", "slime generate");

  JsonLines input(file);
  const SystemClock clock;
  const auto tokenizer = skip_tokenizer_init ? nullptr : open_tokenizer(directory);
  const model::ModelConfig model = model::read_model_config(directory);
  const auto network = model::load_network(
      directory, model::precision_on(device.device, dtype == "auto" ? model.dtype : dtype));
  if (!adapter.empty()) model::load_adapters(*network, adapter);
  config.kv_cache_bytes = kv_cache_bytes_of(device);
  config.records_experts = model.has_experts();
  if (tokenizer != nullptr) {
    config.token_bytes = [&tokenizer](TokenId id) { return tokenizer->token_bytes(id); };
    config.eos_token_ids = told_end_tokens(model, *tokenizer);
  }
  config.constraints = make_constraints(grammar, tokenizer.get(), model.vocab_size,
                                        config.eos_token_ids, "slime generate");
  Lines lines;  // before the engine, whose thread fills them
  engine::Engine engine(*network, config, clock);
  const engine::ServedModel served{
      .name = word,
      .path = directory,
      .dtype = dtype,
      .model_type = model.model_type,
      .context_length = engine.max_request_tokens(),
      .returns_routed_experts = config.records_experts,
      .vocab_size = model.vocab_size,
      .sampling_defaults = sampling_defaults_by(sampling_defaults, directory),
      .tokenizer = tokenizer.get(),
      .longest_token_bytes = tokenizer ? engine::longest_token_bytes(*tokenizer) : 0};
  if (std::filesystem::is_regular_file(file)) {
    LineReader checks = rows.are_read ? LineReader(served, rows.options()) : LineReader(served);
    check_lines(file, checks);
  }
  LineReader reader = rows.are_read ? LineReader(served, rows.options()) : LineReader(served);
  const auto print_all = [&lines] {
    while (lines.size() > 0) lines.print_oldest();
  };
  try {
    while (auto line = input.next()) {
      if (lines.size() >= kMaxLinesInFlight) lines.print_oldest();
      engine::GenerateCall call = reader.to_call(std::move(*line), input.where());
      lines.submit(engine, std::move(call), tokenizer.get(), reader.take_row());
    }
  } catch (const ConfigError&) {
    print_all();  // of the lines before the wrong one
    throw;
  }
  print_all();
  return 0;
}

}  // namespace slime::cli
