#include "tinker/journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/field_reader.h"
#include "core/replace_file.h"
#include "core/safe_text.h"
#include "tinker/refusal.h"

namespace slime::tinker {
namespace fs = std::filesystem;
namespace {

constexpr const char* kRequest = ".request";
constexpr const char* kAnswer = ".answer";
constexpr const char* kDeleted = ".deleted";
/// Requests whose answers are kept beyond the newest state.
constexpr int64_t kKeptAnswers = 256;

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw ConfigError(fmt::format("{}: {}", folder.string(), error.message()));
}

std::string read_whole(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::optional<int64_t> number_of(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

/// Entries of a folder whose names are a number and `suffix`, ascending.
std::map<int64_t, fs::path> numbered(const fs::path& folder, std::string_view suffix) {
  std::map<int64_t, fs::path> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(suffix)) continue;
    if (const auto number =
            number_of(std::string_view(name).substr(0, name.size() - suffix.size())))
      found[*number] = entry.path();
  }
  return found;
}

void write_into(const fs::path& folder, const std::string& name, std::string_view text) {
  or_refuse(503, [&] {
    make_folder(folder);
    replace_file(folder / name, text);
  });
}

/// A line of JSON, and the body behind it.
std::string text_of(const AcceptedRequest& request) {
  const json::object head{
      {"route", request.route}, {"future", request.future}, {"is_message", request.is_message}};
  return json_text(head) + "\n" + request.body;
}

AcceptedRequest read_request(int64_t seq_id, const fs::path& path) {
  std::string text = read_whole(path);
  const std::size_t line = text.find('\n');
  const json::value head = parse_json(text.substr(0, line), path.string());
  if (line == std::string::npos || !head.is_object())
    throw ConfigError(path.string() + ": is no request that was written here");
  const FieldReader fields = FieldReader(head.get_object(), path.string() + ": ").required();
  AcceptedRequest request{.seq_id = seq_id,
                          .route = fields.text("route").value_or(""),
                          .future = fields.text("future").value_or(""),
                          .is_message = fields.boolean("is_message").value_or(false),
                          .body = {}};
  request.body = text.substr(line + 1);
  return request;
}

}  // namespace

bool write_or_tell(std::string_view what, const std::function<void()>& write) {
  try {
    write();
    return true;
  } catch (const std::exception& error) {
    fmt::print(stderr, "slime tinker: {}: {}\n", what, safe_text(error.what()));
    return false;
  }
}

std::string stored_name(std::string_view id) {
  std::string name;
  for (const char c : id) name += c == ':' ? std::string("%3A") : std::string(1, c);
  return name;
}

Journal::Journal(fs::path store) : store_(std::move(store)) {
  const fs::path own = store_ / ".service";
  for (const Kind kind : {Kind::kSession, Kind::kModel, Kind::kSampler}) make_folder(place(kind));
  const fs::path lock = own / "lock";
  lock_ = Descriptor(::open(lock.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  if (lock_.get() < 0 || ::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0)
    throw ConfigError(fmt::format("--store {}: another process uses it, or it cannot be written",
                                  store_.string()));
  num_starts_ = number_of(read_whole(own / "starts")).value_or(0) + 1;
  replace_file(own / "starts", std::to_string(num_starts_));
}

fs::path Journal::place(Kind kind) const {
  const char* name = kind == Kind::kSession ? "sessions"
                     : kind == Kind::kModel ? "models"
                                            : "samplers";
  return store_ / ".service" / name;
}

void Journal::write(Kind kind, const std::string& id, const json::object& what) const {
  json::object named = what;
  named["id"] = id;
  write_into(place(kind), stored_name(id) + ".json", json_text(named));
}

void Journal::remove(Kind kind, const std::string& id) const {
  std::error_code ignored;
  fs::remove(place(kind) / (stored_name(id) + ".json"), ignored);
}

std::map<std::string, json::object> Journal::read(Kind kind) const {
  std::map<std::string, json::object> found;
  for (const auto& entry : fs::directory_iterator(place(kind))) {
    if (entry.path().extension() != ".json") continue;
    const json::value value = read_json_file(entry.path());
    if (!value.is_object()) throw ConfigError(entry.path().string() + ": should be an object");
    const FieldReader fields(value.get_object(), entry.path().string() + ": ");
    found[fields.required().text("id").value_or("")] = value.get_object();
  }
  return found;
}

void Journal::accept(const std::string& model, const AcceptedRequest& request) const {
  write_request(model, request, kRequest);
}

void Journal::answer(const std::string& model, const AcceptedRequest& answer) const {
  write_request(model, answer, kAnswer);
}

void Journal::write_request(const std::string& model, const AcceptedRequest& request,
                            std::string_view suffix) const {
  write_into(folder(model) / "requests", fmt::format("{}{}", request.seq_id, suffix),
             text_of(request));
}

std::vector<AcceptedRequest> Journal::read_requests(const std::string& model,
                                                    std::string_view suffix, int64_t behind) const {
  std::vector<AcceptedRequest> found;
  for (const auto& [seq_id, path] : numbered(folder(model) / "requests", suffix))
    if (seq_id > behind) found.push_back(read_request(seq_id, path));
  return found;
}

std::vector<AcceptedRequest> Journal::requests(const std::string& model, int64_t behind) const {
  return read_requests(model, kRequest, behind);
}

std::vector<AcceptedRequest> Journal::answers(const std::string& model) const {
  return read_requests(model, kAnswer, -1);
}

int64_t Journal::last_request(const std::string& model) const {
  const auto all = numbered(folder(model) / "requests", kRequest);
  return all.empty() ? 0 : all.rbegin()->first;
}

void Journal::note_deletion(const std::string& model, const std::string& name,
                            int64_t behind) const {
  const fs::path saved(name);
  write_into(folder(model) / "deleted" / saved.parent_path(), saved.filename().string() + kDeleted,
             std::to_string(behind));
}

void Journal::take_back_deletion(const std::string& model, const std::string& name) const {
  std::error_code ignored;
  fs::remove(folder(model) / "deleted" / (name + kDeleted), ignored);
}

std::multimap<int64_t, std::string> Journal::deletions(const std::string& model,
                                                       int64_t behind) const {
  std::multimap<int64_t, std::string> found;
  const fs::path place = folder(model) / "deleted";
  std::error_code none;
  for (const auto& entry : fs::recursive_directory_iterator(place, none)) {
    if (!entry.is_regular_file() || entry.path().extension() != kDeleted) continue;
    const auto number = number_of(read_whole(entry.path()));
    if (!number) throw ConfigError(entry.path().string() + ": should be the number of a request");
    if (*number <= behind) continue;
    const fs::path name = entry.path().lexically_relative(place);
    found.emplace(*number, (name.parent_path() / name.stem()).string());
  }
  return found;
}

void Journal::forget(const std::string& model, int64_t up_to) const {
  std::error_code ignored;
  const auto forget_up_to = [&](const fs::path& place, const char* suffix, int64_t last) {
    for (const auto& [seq_id, path] : numbered(place, suffix))
      if (seq_id <= last) fs::remove_all(path, ignored);
  };
  forget_up_to(folder(model) / "requests", kRequest, up_to);
  forget_up_to(folder(model) / "requests", kAnswer, up_to - kKeptAnswers);
  forget_up_to(folder(model) / "states", "", up_to - 1);
  write_or_tell(model, [&] {
    for (const auto& [behind, name] : deletions(model, -1))
      if (behind <= up_to) take_back_deletion(model, name);
  });
  // What a process that was killed has not finished.
  for (const auto& entry : fs::directory_iterator(folder(model) / "states", ignored)) {
    if (entry.path().filename().string().starts_with(".")) fs::remove_all(entry.path(), ignored);
  }
}

void Journal::forget_model(const std::string& model) const {
  std::error_code ignored;
  for (const char* part : {"requests", "deleted", "states", "snapshots"})
    fs::remove_all(folder(model) / part, ignored);
}

fs::path Journal::folder(const std::string& model) const { return store_ / stored_name(model); }

fs::path Journal::state(const std::string& model, int64_t seq_id) const {
  return folder(model) / "states" / std::to_string(seq_id);
}

std::pair<int64_t, fs::path> Journal::newest_state(const std::string& model) const {
  const auto states = numbered(folder(model) / "states", "");
  if (states.empty()) return {0, {}};
  return *states.rbegin();
}

}  // namespace slime::tinker
