#include "sandbox/service.h"

#include <fmt/format.h>

#include <array>
#include <system_error>

#include "core/error.h"
#include "core/field_reader.h"
#include "sandbox/program.h"
#include "text/unicode/unicode.h"

namespace slime::sandbox {
namespace {

constexpr int64_t kMebi = int64_t{1} << 20;
constexpr int64_t kMostReadBytes = 64 * kMebi;  // of a file, where the request says nothing

/// A byte string as text: each byte is the character of its number.
std::string text_of_bytes(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text::append_utf8(static_cast<unsigned char>(byte), text);
  return text;
}

/// Back. Throws ConfigError for a character above 255.
std::string bytes_of_text(std::string_view text) {
  std::string bytes;
  for (std::size_t at = 0; at < text.size();) {
    const auto first = static_cast<unsigned char>(text[at]);
    if (first < 0x80) {
      bytes += text[at++];
    } else if (first <= 0xC3 && at + 1 < text.size()) {
      bytes += static_cast<char>((first & 0x03) << 6 | (text[at + 1] & 0x3F));
      at += 2;
    } else {
      throw ConfigError("bytes: each character stands for one byte, so none is above U+00FF");
    }
  }
  return bytes;
}

void read_limits(const FieldReader& fields, Limits& limits) {
  constexpr std::array<std::string_view, 7> kKnown{"seconds", "memory_mb", "processes", "output_kb",
                                                   "disk_mb", "files",     "open_files"};
  fields.refuse_unknown(kKnown);
  using Ceilings = LimitCeilings;
  const double most_seconds = std::chrono::duration<double>(Ceilings::kTime).count();
  if (const auto seconds = fields.number("seconds", 0.001, most_seconds)) {
    limits.time =
        std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(*seconds));
  }
  const auto read = [&](const char* name, int64_t low, int64_t high, int64_t unit, int64_t& value) {
    if (const auto number = fields.integer(name, low, high / unit)) value = *number * unit;
  };
  read("memory_mb", 16, Ceilings::kBytes, kMebi, limits.memory_bytes);
  read("processes", 1, Ceilings::kProcesses, 1, limits.processes);
  read("output_kb", 1, Ceilings::kOutputBytes, 1024, limits.output_bytes);
  read("disk_mb", 1, Ceilings::kBytes, kMebi, limits.disk_bytes);
  read("files", 16, Ceilings::kFiles, 1, limits.files);
  read("open_files", 16, Ceilings::kOpenFiles, 1, limits.open_files);
}

Program program_of(const FieldReader& fields) {
  const std::string name = fields.text("language").value_or("python");
  const auto language = language_named(name);
  if (!language)
    throw ConfigError(fmt::format("language {}: should be python, shell or c++", name));
  return {.language = *language,
          .code = fields.required().text("code").value_or(""),
          .arguments = fields.strings("arguments"),
          .input = fields.text("input").value_or("")};
}

std::vector<std::string> environment_of(const FieldReader& fields, const Sandbox& sandbox) {
  std::vector<std::string> environment = sandbox.usual_environment();
  const json::object* own = fields.object("environment");
  if (own == nullptr) return environment;
  for (const auto& [name, value] : *own) {
    if (!value.is_string() || name.empty() || name.contains('='))
      throw ConfigError("environment: should be an object of names and strings");
    const std::string prefix = std::string(name) + "=";
    std::erase_if(environment, [&](const std::string& one) { return one.starts_with(prefix); });
    environment.push_back(prefix + std::string(value.get_string()));
  }
  return environment;
}

json::object judged(Sandbox& sandbox, const Program& program, const FieldReader& fields) {
  std::vector<Case> cases;
  for (const FieldReader& each : fields.list("cases")) {
    cases.push_back(
        {each.text("input").value_or(""), each.required().text("expected").value_or("")});
  }
  const Judgement judgement = judge(sandbox, program, cases);
  int64_t num_passed = 0;
  json::array list;
  for (const Judgement::OfCase& each : judgement.cases) {
    json::object one = to_json(each.outcome);
    one["passed"] = each.is_passed;
    num_passed += each.is_passed ? 1 : 0;
    list.push_back(std::move(one));
  }
  json::object answer{{"passed", num_passed}, {"cases", std::move(list)}};
  if (judgement.build) answer["build"] = to_json(*judgement.build);
  return answer;
}

}  // namespace

SandboxConfig config_of(const json::object& request, SandboxConfig usual) {
  const FieldReader fields(request, "");
  if (const auto limits = fields.fields("limits")) read_limits(*limits, usual.limits);
  for (const std::string& path : fields.strings("readable")) usual.readable.emplace_back(path);
  if (const auto gpu = fields.integer("gpu", 0, kLastGpu)) usual.gpu = static_cast<int>(*gpu);
  return usual;
}

json::object to_json(const Outcome& outcome) {
  json::object answer{{"ending", name_of(outcome.ending)},
                      {"code", outcome.code},
                      {"output", text::to_valid_utf8(outcome.output)},
                      {"error", text::to_valid_utf8(outcome.error)},
                      {"seconds", outcome.seconds},
                      {"cpu_seconds", outcome.cpu_seconds}};
  if (!outcome.reason.empty()) answer["reason"] = outcome.reason;
  return answer;
}

json::object Service::run(const json::object& request) {
  const FieldReader fields(request, "");
  const Program program = program_of(fields);
  Sandbox sandbox(config_of(request, usual_));
  if (fields.has("cases")) return judged(sandbox, program, fields);
  const ProgramOutcome outcome = run_program(sandbox, program);
  json::object answer = to_json(outcome.run);
  if (outcome.build) answer["build"] = to_json(*outcome.build);
  return answer;
}

json::object Service::open(const json::object& request) {
  auto sandbox = std::make_shared<Sandbox>(config_of(request, usual_));
  const std::lock_guard lock(mutex_);
  if (open_.size() >= kMostSandboxes)
    throw ConfigError(fmt::format("{} sandboxes are open; close some first", open_.size()));
  open_[next_] = std::move(sandbox);
  return {{"sandbox", next_++}};
}

std::shared_ptr<Sandbox> Service::sandbox_of(const json::object& request) {
  const int64_t number = FieldReader(request, "").required().integer("sandbox").value_or(0);
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(number);
  if (found == open_.end()) throw ConfigError(fmt::format("sandbox {}: is not open", number));
  return found->second;
}

json::object Service::close(const json::object& request) {
  const std::shared_ptr<Sandbox> sandbox = sandbox_of(request);
  {
    const std::lock_guard lock(mutex_);
    open_.erase(request.at("sandbox").to_number<int64_t>());
  }
  sandbox->end();
  return {};
}

json::object Service::exec(const json::object& request) {
  const FieldReader fields(request, "");
  const std::shared_ptr<Sandbox> sandbox = sandbox_of(request);
  Command command{.words = fields.strings("words"),
                  .environment = environment_of(fields, *sandbox),
                  .folder = fields.text("folder").value_or("/work"),
                  .input = fields.text("input").value_or(""),
                  .warm = fields.text("warm").value_or("")};
  if (command.words.empty()) throw ConfigError("words: should be a program and its arguments");
  for (const std::string& word : command.words)
    if (word.find('\0') != std::string::npos) throw ConfigError("words: have no NUL");
  Limits limits = sandbox->limits();
  if (const auto own = fields.fields("limits")) read_limits(*own, limits);
  return to_json(sandbox->run(std::move(command), limits));
}

json::object Service::write(const json::object& request) {
  const FieldReader fields(request, "");
  const std::string path = fields.required().text("path").value_or("");
  const std::string bytes = bytes_of_text(fields.required().text("bytes").value_or(""));
  if (const auto written = sandbox_of(request)->write(path, bytes); !written)
    return {{"problem", written.error().message}};
  return {};
}

json::object Service::read(const json::object& request) {
  const FieldReader fields(request, "");
  const std::string path = fields.required().text("path").value_or("");
  const auto limit = fields.integer("limit_bytes", 1, LimitCeilings::kOutputBytes);
  const auto bytes = sandbox_of(request)->read(path, limit.value_or(kMostReadBytes));
  if (!bytes) return {{"problem", text::to_valid_utf8(bytes.error().message)}};
  return {{"bytes", text_of_bytes(*bytes)}};
}

json::object Service::answer(const json::object& request) {
  json::object answer;
  try {
    constexpr std::array<std::string_view, 6> kActions{"run",   "open", "exec",
                                                       "write", "read", "close"};
    const std::string action =
        FieldReader(request, "").required().one_of("do", kActions).value_or("");
    answer = action == "run"     ? run(request)
             : action == "open"  ? open(request)
             : action == "exec"  ? exec(request)
             : action == "write" ? write(request)
             : action == "read"  ? read(request)
                                 : close(request);
  } catch (const ConfigError& error) {
    answer = {{"problem", error.what()}};
  } catch (const std::system_error& error) {  // no descriptors, no processes: a bad day of this one
    answer = {{"problem", error.what()}};
  }
  if (const json::value* id = request.if_contains("id")) answer["id"] = *id;
  return answer;
}

}  // namespace slime::sandbox
